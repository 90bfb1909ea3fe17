"""JWTs in the place of shared access signatures, as senders and listeners with an Entra identity show them.

    base64url({"alg": "RS256", ...}) . base64url({"iss", "aud", "exp", "nbf", "roles", "sub"}) . base64url(signature)

Only RS256 is accepted, whatever the header asks for, and only with the configured key: a header's `kid`, `jku` or `x5c`
is never looked at. No text repeats anything of a token.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from relay_core.errors import ConfigurationError
from relay_server.access.rules import Grant
from relay_server.config.model import HybridConnection, JwtIssuer, Right
from relay_server.protocol.refusals import malformed_token, missing_right, unauthorized

__all__ = ["JwtVerifier"]

CLOCK_SKEW = 60.0
"""Seconds that an issuer's clock may be ahead of ours; a token that has expired gets none."""
MIN_KEY_BITS = 2048
_ALGORITHM = "RS256"
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
        """Check form, signature, time, audience and right, in this order: the first fault is the one that is told."""
        signed, _, signature = token.rpartition(".")
        header, claims = (_parse_object(part) for part in signed.split("."))
        if header.get("alg") != _ALGORITHM or "crit" in header:
            raise malformed_token()
        issuer = self._signer(claims, signed.encode(), _decode(signature))
        expires_at = _seconds(claims, "exp")
        if expires_at <= now:
            raise unauthorized("ExpiredToken", "The token is expired")
        if "nbf" in claims and _seconds(claims, "nbf") > now + CLOCK_SKEW:
            raise unauthorized("ImmatureToken", "The token is not valid yet")
        if not set(_texts(claims.get("aud"))) & set(issuer.audiences):
            raise unauthorized("InvalidAudience", "The token's audience does not match the endpoint")
        granted = {each for role in _texts(claims.get("roles")) for each in issuer.roles.get(role, ())}
        if not granted & {right, Right.MANAGE}:
            raise missing_right(right.value)
        return Grant(expires_at=expires_at, rule=_subject(claims))

    def _signer(self, claims: Mapping[str, Any], signed: bytes, signature: bytes) -> JwtIssuer:
        """Return the issuer that the token names, if one of its keys made the signature."""
        for issuer, key in self._issuers:
            if issuer.issuer != claims.get("iss"):
                continue
            try:
                key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
            except InvalidSignature:
                continue
            return issuer
        raise unauthorized("InvalidSignature", "The token has an invalid signature")


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


def _decode(part: str) -> bytes:
    """Decode base64url without padding, and nothing that merely resembles it."""
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise malformed_token() from None


def _parse_object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_decode(part))
    except (ValueError, RecursionError):
        raise malformed_token() from None
    if not isinstance(found, dict):
        raise malformed_token()
    return found


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
