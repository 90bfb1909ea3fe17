"""Sources of the tunnel key, in order of precedence.

1. --tunnel-key-file             must not be readable by other users (0600)
2. --tunnel-key-secret           name of a Key Vault secret
3. TunnelKey= in the connection string
4. RELAY_TUNNEL_KEY              environment
5. RELAY_TUNNEL_KEY_FILE         environment; the file must not be readable by other users
6. RELAY_TUNNEL_KEY_SECRET       environment; name of a Key Vault secret
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from relay_core.access_settings import (
    TUNNEL_KEY_FILE_VARIABLE,
    TUNNEL_KEY_SECRET_VARIABLE,
    TUNNEL_KEY_VARIABLE,
    AccessSettings,
)
from relay_core.auth.precedence import Source
from relay_core.auth.secret_file import read_secret_file
from relay_core.hyco.tunnel_key import parse_tunnel_key

__all__ = ["tunnel_key_sources"]

ReadSecret = Callable[[str], Awaitable[str]]


def tunnel_key_sources(
    from_connection_string: bytes | None,
    settings: AccessSettings,
    environ: Mapping[str, str],
    *,
    vault: str | None,
    read_secret: ReadSecret,
) -> list[Source[bytes]]:
    """Return all sources by precedence, including those that are not present.

    Args:
        from_connection_string: The key in the connection string, if it has one.
        settings: Explicit settings.
        environ: The environment.
        vault: The Key Vault, if one is given.
        read_secret: Reads a secret from this Key Vault and may raise RelayDebugError.
    """
    vault_name = vault or "no vault"
    in_file, in_secret = environ.get(TUNNEL_KEY_FILE_VARIABLE), environ.get(TUNNEL_KEY_SECRET_VARIABLE)
    return [
        _file("--tunnel-key-file", settings.tunnel_key_file, explicit=True),
        _secret("--tunnel-key-secret", settings.tunnel_key_secret, vault_name, read_secret, explicit=True),
        _connection_string(from_connection_string),
        _variable(environ.get(TUNNEL_KEY_VARIABLE)),
        _file(TUNNEL_KEY_FILE_VARIABLE, in_file),
        _secret(TUNNEL_KEY_SECRET_VARIABLE, in_secret, vault_name, read_secret),
    ]


def _connection_string(key: bytes | None) -> Source[bytes]:
    if not key:
        return Source("TunnelKey", "not in the connection string")

    async def read() -> bytes:
        return key

    return Source("TunnelKey", "in the connection string", read)


def _variable(text: str | None) -> Source[bytes]:
    if not text:
        return Source(TUNNEL_KEY_VARIABLE, "not set")

    async def read() -> bytes:
        return parse_tunnel_key(text, f"the tunnel key from {TUNNEL_KEY_VARIABLE}")

    return Source(TUNNEL_KEY_VARIABLE, "set", read)


def _file(name: str, path: str | None, *, explicit: bool = False) -> Source[bytes]:
    if not path:
        return Source(name, "not given" if explicit else "not set")

    async def read() -> bytes:
        return parse_tunnel_key(read_secret_file(path), f"the tunnel key from {path}")

    return Source(name, path, read, explicit=explicit)


def _secret(
    name: str, secret: str | None, vault: str, read_secret: ReadSecret, *, explicit: bool = False
) -> Source[bytes]:
    if not secret:
        return Source(name, "not given" if explicit else "not set")

    async def read() -> bytes:
        return parse_tunnel_key(await read_secret(secret), f"the tunnel key from Key Vault secret '{secret}'")

    return Source(name, f"secret '{secret}' in {vault}", read, explicit=explicit)
