"""Authorization of listeners and senders: the rules of a namespace, shared access signatures and JWTs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from relay_core.errors import ConfigurationError, ProtocolError
from relay_core.hyco.sas import SasToken
from relay_server.config.model import HybridConnection, JwtIssuer, Right, Rule
from relay_server.protocol.refusals import Refusal, malformed_token, missing_right, missing_token, unauthorized

if TYPE_CHECKING:
    from jwt.types import Options  # used only as a type, which the oldest supported PyJWT does not have


MAX_TOKEN_CHARS = 16 * 1024
"""Maximum size of a token, far above that of real tokens (JWTs: 2-8 KiB); limits the time for hashing a token."""
_DECOY_KEY = "-"
"""Key for a token that names an unknown rule, so that the response takes as long as for a wrong signature."""
_BEARER = "bearer "


class Authorizer:
    """Authorizes requests with and without a token: a shared access signature, or a JWT of a configured issuer.

    Args:
        hosts: Host names that are accepted as audience of a shared access signature.
        rules: The rules of the namespace.
        issuers: The accepted issuers of JWTs.

    Raises:
        ConfigurationError: The public key of an issuer cannot be read or is invalid.
    """

    def __init__(self, *, hosts: Sequence[str], rules: Sequence[Rule], issuers: Sequence[JwtIssuer] = ()) -> None:
        self._hosts = tuple(hosts)
        self._rules = tuple(rules)
        self._issuers = tuple((issuer, _load_key(issuer)) for issuer in issuers)

    def check(
        self, token: str | None, *, right: Right, path: str, connection: HybridConnection | None, now: float
    ) -> float:
        """Check a request's token, and return when it expires, in Unix seconds.

        A sender needs no token if the hybrid connection does not require authorization; the result is then infinite.

        Args:
            token: Text from the client, or None.
            right: The required right.
            path: The requested path: the name of the hybrid connection and, for a sender, the rest of its path.
            connection: The hybrid connection, or None if it does not exist.
            now: Unix seconds.

        Raises:
            Refusal: 401, the token is missing or invalid, or does not grant the right.
        """
        # An unknown hybrid connection requires a token, so that clients without one cannot discover which ones exist.
        if right is Right.SEND and connection is not None and not connection.requires_client_authorization:
            return math.inf
        if not token:
            raise missing_token()
        if len(token) > MAX_TOKEN_CHARS or not token.isascii():
            raise malformed_token()
        bare = token[len(_BEARER) :] if token.lower().startswith(_BEARER) else token
        if bare.lower().startswith("sharedaccesssignature"):
            return self._check_signature(bare, right, path, connection, now)
        # A JWT has three parts, of which the first starts with base64url of `{"`.
        if self._issuers and bare.startswith("ey") and bare.count(".") == 2:
            return self._check_jwt(bare, right, now)
        raise malformed_token()

    def _check_signature(
        self, token: str, right: Right, path: str, connection: HybridConnection | None, now: float
    ) -> float:
        """Check signature, expiry, audience and right, in this order; the first failure is reported."""
        try:
            parsed = SasToken.parse(token)
        except ProtocolError:
            raise malformed_token() from None
        entity_rules = connection.rules if connection is not None else ()
        rule = _signer(parsed, (*entity_rules, *self._rules))
        if rule is None:
            raise unauthorized("InvalidSignature", "The token has an invalid signature")
        if parsed.expires_at <= now:
            raise unauthorized("ExpiredToken", "The token is expired")
        target = connection.path if connection is not None else path
        if not any(parsed.covers(host=host, path=target) for host in self._hosts):
            raise _wrong_audience()
        if not rule.allows(right):
            raise missing_right(right.value)
        return float(parsed.expires_at)

    def _check_jwt(self, token: str, right: Right, now: float) -> float:
        """Check format, signature, issuer, audience, time and right, in this order; the first failure is reported.

        The right is valid for the whole namespace, because a JWT has roles for all of it.
        """
        issuer, claims = self._verified(token)
        expires_at = _seconds(claims, "exp")
        if expires_at <= now:
            raise unauthorized("ExpiredToken", "The token is expired")
        if "nbf" in claims and _seconds(claims, "nbf") > now + CLOCK_SKEW:
            raise unauthorized("ImmatureToken", "The token is not valid yet")
        granted = {each for role in _texts(claims.get("roles")) for each in issuer.roles.get(role, ())}
        if not granted & {right, Right.MANAGE}:
            raise missing_right(right.value)
        return expires_at

    def _verified(self, token: str) -> tuple[JwtIssuer, Mapping[str, Any]]:
        """Return the issuer whose key verifies the signature, and the claims."""
        for issuer, key in self._issuers:
            try:
                return issuer, _decode(token, issuer, key)
            except (jwt.InvalidSignatureError, jwt.InvalidIssuerError):
                continue  # another entry with the same issuer may have a newer key
        raise unauthorized("InvalidSignature", "The token has an invalid signature")


def _signer(token: SasToken, rules: Iterable[Rule]) -> Rule | None:
    """Return the first rule with a key that verifies the signature; those of the hybrid connection come first."""
    named = [rule for rule in rules if rule.name.lower() == token.key_name.lower()]
    for rule in named:
        for key in rule.keys:
            if token.is_signed_with(key):
                return rule
    if not named:
        token.is_signed_with(_DECOY_KEY)
    return None


# Verification of JWTs, which clients with an Entra identity send instead of shared access signatures.
#
#     base64url({"alg": "RS256", ...}) . base64url({"iss", "aud", "exp", "nbf", "roles", "sub"}) . base64url(signature)
#
# PyJWT verifies format, signature, issuer and audience. Only RS256 with a configured key is accepted: the header's
# `alg` cannot select another algorithm, and its `kid`, `jku` and `x5c` are not used. Times are compared here, because
# PyJWT reads the clock and `Authorizer` gets `now` as an argument. Messages never contain any part of a token.

CLOCK_SKEW = 60.0
"""Seconds by which an issuer's clock may be ahead of this machine's; expired tokens are refused without tolerance."""
MIN_KEY_BITS = 2048
_ALGORITHMS = ["RS256"]
_OPTIONS: Options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
"""Checks of PyJWT that are disabled, because they read the clock."""
_END_OF_TIME = 1e12


def _decode(token: str, issuer: JwtIssuer, key: rsa.RSAPublicKey) -> Mapping[str, Any]:
    """Return the claims of a token that this issuer has signed for one of its audiences.

    Raises:
        jwt.InvalidSignatureError: The token was signed with another key.
        jwt.InvalidIssuerError: The token names another issuer, or none.
        Refusal: The token is malformed, or has another audience.
    """
    try:
        decoded = jwt.decode_complete(
            token, key, algorithms=_ALGORITHMS, issuer=issuer.issuer, audience=issuer.audiences, options=_OPTIONS
        )
    except (jwt.InvalidSignatureError, jwt.InvalidIssuerError):
        raise
    except jwt.MissingRequiredClaimError as error:
        if error.claim == "iss":
            raise jwt.InvalidIssuerError from None
        raise _wrong_audience() from None
    except jwt.InvalidAudienceError:
        raise _wrong_audience() from None
    except (jwt.PyJWTError, ValueError, RecursionError):  # ValueError: text or numbers that cannot be decoded
        raise malformed_token() from None
    if "crit" in decoded["header"]:  # extensions that must be understood (RFC 7515, 4.1.11); this relay has none
        raise malformed_token()
    claims: dict[str, Any] = decoded["payload"]
    return claims


def _wrong_audience() -> Refusal:
    return unauthorized("InvalidAudience", "The token's audience does not match the endpoint")


def _load_key(issuer: JwtIssuer) -> rsa.RSAPublicKey:
    hint = "use a PEM file that begins with -----BEGIN PUBLIC KEY-----"
    try:
        key = serialization.load_pem_public_key(issuer.public_key.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {issuer.public_key}: {error.strerror}", hint=hint) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{issuer.public_key} does not contain a public key", hint=hint) from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < MIN_KEY_BITS:
        raise ConfigurationError(f"{issuer.public_key} is not an RSA key of at least {MIN_KEY_BITS} bits", hint=hint)
    return key


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _END_OF_TIME:
        raise malformed_token()
    return float(value)


def _texts(value: object) -> list[str]:
    """Return the strings in a claim, which is a string or a list of strings."""
    found = value if isinstance(value, list) else [value]
    return [text for text in found if isinstance(text, str)]
