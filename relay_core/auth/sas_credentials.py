"""Credentials from a connection string: a key that signs tokens, a signed token, or none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from relay_core.errors import ConfigurationError, ProtocolError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import ConnectionString
from relay_core.hyco.sas import Credential, SasToken, Token, mint

TOKEN_LIFETIME = 3600
"""Seconds; the official SDKs use the same lifetime."""


class _Fixed:
    """What the credentials below have in common: they need no roles, and no other token after a refusal."""

    role_grace = 0.0

    def refused(self) -> None:
        """Do nothing: each token is new, or the only one."""


class SasKeyCredential(_Fixed):
    """Signs a new token for every call; only tokens are sent, never the key.

    Args:
        key_name: Name of the authorization rule.
        key: Its primary or secondary key.
        lifetime: Seconds until a token expires.
        keys: By path, the keys of hybrid connections whose rule of that name has a different key.
    """

    def __init__(
        self, key_name: str, key: str, *, lifetime: int = TOKEN_LIFETIME, keys: Mapping[str, str] | None = None
    ) -> None:
        self._key_name = key_name
        self._key = key
        self._lifetime = lifetime
        self._keys = dict(keys or {})

    def __str__(self) -> str:
        return f"key of rule '{self._key_name}'"

    async def token(self, endpoint: Endpoint) -> Token:
        """Return a token that expires in `lifetime` seconds."""
        expires_at = int(time.time()) + self._lifetime
        key = self._keys.get(endpoint.path, self._key)
        value = mint(endpoint.audience, key_name=self._key_name, key=key, expires_at=expires_at)
        return Token(value, float(expires_at))


class SasTokenCredential(_Fixed):
    """Provides a token that was signed elsewhere and cannot be renewed.

    Raises:
        ConfigurationError: The text is not a shared access signature.
    """

    def __init__(self, text: str) -> None:
        try:
            parsed = SasToken.parse(text)
        except ProtocolError as error:
            raise ConfigurationError(
                f"SharedAccessSignature is unusable: {error.sentence}",
                hint="use the format 'SharedAccessSignature sr=...&sig=...&se=...&skn=...'",
            ) from None
        self._token = Token(text, float(parsed.expires_at))
        self._key_name = parsed.key_name

    def __str__(self) -> str:
        return f"signature of rule '{self._key_name}'"

    async def token(self, endpoint: Endpoint) -> Token:  # noqa: ARG002 - the protocol's signature
        """Return the token, even if it has expired: the relay then refuses it with a clear reason."""
        return self._token


class AnonymousCredential(_Fixed):
    """No token, for hybrid connections that do not require client authorization."""

    def __str__(self) -> str:
        return "no key"

    async def token(self, endpoint: Endpoint) -> Token:  # noqa: ARG002 - the protocol's signature
        """Return an empty token."""
        return Token("", None)


def credential_from_connection_string(parsed: ConnectionString) -> Credential:
    """Return the credential in a connection string, or an anonymous one if it has none.

    A string with `Authentication=Managed Identity` has none; `relay_core.auth.find_access` handles that case.
    """
    if parsed.key_name and parsed.key:
        # An authorization rule of a hybrid connection is valid only there, so each hybrid connection of a family has
        # its own key.
        others = parsed.endpoint().siblings[1:] if parsed.family_keys else ()
        keys = {other.path: key for other, key in zip(others, parsed.family_keys, strict=True)}
        return SasKeyCredential(parsed.key_name, parsed.key, keys=keys)
    if parsed.signature:
        return SasTokenCredential(parsed.signature)
    return AnonymousCredential()
