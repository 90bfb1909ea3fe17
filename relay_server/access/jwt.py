"""JWTs in the place of shared access signatures, as senders and listeners with an Entra identity show them.

    base64url({"alg": "RS256", ...}) . base64url({"iss", "aud", "exp", "nbf", "roles", "sub"}) . base64url(signature)

PyJWT verifies form, signature, issuer and audience. Only RS256 is accepted, whatever the header asks for, and only with
the configured key: a header's `kid`, `jku` or `x5c` is never used. Times are compared here, because every verifier gets
`now` as an argument and PyJWT reads the clock. No message repeats any part of a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from relay_core.errors import ConfigurationError
from relay_server.access.rules import Grant
from relay_server.config.model import HybridConnection, JwtIssuer, Right
from relay_server.protocol.refusals import Refusal, malformed_token, missing_right, unauthorized

if TYPE_CHECKING:
    from jwt.types import Options  # a type only, and a newer one than the oldest PyJWT

__all__ = ["JwtVerifier"]

CLOCK_SKEW = 60.0
"""Seconds that an issuer's clock may be ahead of ours; a token that has expired gets none."""
MIN_KEY_BITS = 2048
_ALGORITHMS = ["RS256"]
_OPTIONS: Options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
"""What PyJWT would compare with the clock."""
_END_OF_TIME = 1e12


class JwtVerifier:
    """Checks the tokens of some issuers.

    Args:
        issuers: Whose tokens count.

    Raises:
        ConfigurationError: a public key cannot be used.
    """

    def __init__(self, issuers: Sequence[JwtIssuer]) -> None:
        self._issuers = tuple((issuer, _load_key(issuer)) for issuer in issuers)

    def __repr__(self) -> str:
        return f"<JwtVerifier {', '.join(issuer.issuer for issuer, _ in self._issuers) or 'nobody'}>"

    def recognises(self, token: str) -> bool:
        """Whether the text looks like a JWT: three parts, the first one beginning with base64url of `{"`."""
        return bool(self._issuers) and token.startswith("ey") and token.count(".") == 2

    def verify(
        self,
        token: str,
        *,
        right: Right,
        path: str,  # noqa: ARG002 - roles are those of the whole namespace
        connection: HybridConnection | None,  # noqa: ARG002
        now: float,
    ) -> Grant:
        """Check form, signature, issuer, audience, time and right, in this order; the first fault is reported."""
        issuer, claims = self._verified(token)
        expires_at = _seconds(claims, "exp")
        if expires_at <= now:
            raise unauthorized("ExpiredToken", "The token is expired")
        if "nbf" in claims and _seconds(claims, "nbf") > now + CLOCK_SKEW:
            raise unauthorized("ImmatureToken", "The token is not valid yet")
        granted = {each for role in _texts(claims.get("roles")) for each in issuer.roles.get(role, ())}
        if not granted & {right, Right.MANAGE}:
            raise missing_right(right.value)
        return Grant(expires_at=expires_at, rule=_subject(claims))

    def _verified(self, token: str) -> tuple[JwtIssuer, Mapping[str, Any]]:
        """Return the issuer whose key made the signature, and the claims."""
        for issuer, key in self._issuers:
            try:
                return issuer, _decode(token, issuer, key)
            except (jwt.InvalidSignatureError, jwt.InvalidIssuerError):
                continue  # another entry may have the same issuer and a newer key
        raise unauthorized("InvalidSignature", "The token has an invalid signature")


def _decode(token: str, issuer: JwtIssuer, key: rsa.RSAPublicKey) -> Mapping[str, Any]:
    """Return the claims of a token that this issuer signed for one of its audiences.

    Raises:
        jwt.InvalidSignatureError: another key signed it.
        jwt.InvalidIssuerError: it names another issuer, or none.
        Refusal: it is malformed, or meant for another audience.
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
    except (jwt.PyJWTError, ValueError, RecursionError):  # ValueError: text or numbers that cannot be decoded at all
        raise malformed_token() from None
    if "crit" in decoded["header"]:  # extensions that must be understood (RFC 7515, 4.1.11); this relay has none
        raise malformed_token()
    claims: dict[str, Any] = decoded["payload"]
    return claims


def _wrong_audience() -> Refusal:
    return unauthorized("InvalidAudience", "The token's audience does not match the endpoint")


def _load_key(issuer: JwtIssuer) -> rsa.RSAPublicKey:
    hint = "it is PEM and begins with -----BEGIN PUBLIC KEY-----"
    try:
        key = serialization.load_pem_public_key(issuer.public_key.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {issuer.public_key}: {error.strerror}", hint=hint) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{issuer.public_key} holds no public key", hint=hint) from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < MIN_KEY_BITS:
        raise ConfigurationError(f"{issuer.public_key} is no RSA key of {MIN_KEY_BITS} bits or more", hint=hint)
    return key


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _END_OF_TIME:
        raise malformed_token()
    return float(value)


def _texts(value: object) -> list[str]:
    """Return a claim that is one text or a list of texts."""
    found = value if isinstance(value, list) else [value]
    return [text for text in found if isinstance(text, str)]


def _subject(claims: Mapping[str, Any]) -> str:
    """Return who the token is about, fit for a log line."""
    subject = next((claims[name] for name in ("oid", "sub") if isinstance(claims.get(name), str)), "nobody")
    return "".join(character for character in str(subject)[:64] if character.isprintable())
