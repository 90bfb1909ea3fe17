"""Connection strings: `Key=Value` pairs separated by `;`.

    Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=<key>;EntityPath=myhc
    Endpoint=sb://localhost:8443;SharedAccessSignature=SharedAccessSignature sr=...;EntityPath=myhc
    Endpoint=sb://contoso.servicebus.windows.net/;EntityPath=myhc;Authentication=Managed Identity
    ...;EntityPath=myhc;TunnelKey=<44 characters of base64>      our own field, 32 bytes, never sent to the relay

Keys are case-insensitive, their order is free, values are split off at the first `=` and kept to the letter (a
key's trailing `=` matters). Bad examples: no `Endpoint`; a key name without a key; a key and a signature; an
unknown field; a field twice. No sentence about a bad string ever repeats a value from it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from relay_core.errors import ConfigurationError
from relay_core.hyco.address import Endpoint

__all__ = ["TUNNEL_KEY_BYTES", "ConnectionString"]

TUNNEL_KEY_BYTES = 32
MAX_KEY_CHARS = 256
"""Longest key and key name the official clients accept."""

_HINT = (
    "it looks like 'Endpoint=sb://<namespace>.servicebus.windows.net/;SharedAccessKeyName=<rule>;"
    "SharedAccessKey=<key>;EntityPath=<hybrid connection>'; copy it again, in quotes"
)
_FIELDS = {
    "endpoint": "Endpoint",
    "entitypath": "EntityPath",
    "sharedaccesskeyname": "SharedAccessKeyName",
    "sharedaccesskey": "SharedAccessKey",
    "sharedaccesssignature": "SharedAccessSignature",
    "operationtimeout": "OperationTimeout",
    "authentication": "Authentication",
    "tunnelkey": "TunnelKey",
}


@dataclass(frozen=True)
class ConnectionString:
    """The parsed fields; secrets stay out of `repr()`."""

    host: str
    """Namespace host name, lower case."""
    port: int = 443
    entity_path: str | None = None
    """Hybrid connection name, or None for a namespace-level string."""
    key_name: str | None = None
    key: str | None = None
    signature: str | None = None
    """A ready token (`SharedAccessSignature sr=...`) instead of a key."""
    operation_timeout: str | None = None
    """Kept as written: .NET writes hh:mm:ss, Java seconds."""
    managed_identity: bool = False
    tunnel_key: bytes | None = None
    """32 bytes shared by agent and client, unknown to the relay."""

    def __repr__(self) -> str:
        how = "key" if self.key else "signature" if self.signature else "identity" if self.managed_identity else "none"
        sealed = ", tunnel key" if self.tunnel_key else ""
        return f"<ConnectionString {self.host}:{self.port}/{self.entity_path or ''} auth={how}{sealed}>"

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Read a connection string in any form that the portal, `az` or the SDKs write.

        Raises:
            ConfigurationError: with the name of the offending field, never its value.
        """
        fields = _split(text.strip())
        if "endpoint" not in fields:
            raise ConfigurationError("the connection string has no Endpoint", hint=_HINT)
        host, port = _parse_endpoint(fields["endpoint"])
        parsed = cls(
            host=host,
            port=port,
            entity_path=fields.get("entitypath", "").strip("/") or None,
            key_name=fields.get("sharedaccesskeyname") or None,
            key=fields.get("sharedaccesskey") or None,
            signature=fields.get("sharedaccesssignature") or None,
            operation_timeout=fields.get("operationtimeout") or None,
            managed_identity=_parse_authentication(fields.get("authentication", "")),
            tunnel_key=_parse_tunnel_key(fields.get("tunnelkey", "")),
        )
        parsed._check()
        return parsed

    def with_entity(self, path: str) -> ConnectionString:
        """The same credentials for the hybrid connection `path`.

        Raises:
            ConfigurationError: the string already names a different hybrid connection.
        """
        wanted = path.strip("/")
        if self.entity_path and self.entity_path.lower() != wanted.lower():
            raise ConfigurationError(
                f"the connection string is for hybrid connection '{self.entity_path}', not for '{wanted}'",
                hint=f"use --hc {self.entity_path}, or a connection string of '{wanted}' or of the whole namespace",
            )
        return replace(self, entity_path=wanted)

    def endpoint(self) -> Endpoint:
        """The address of the hybrid connection.

        Raises:
            ConfigurationError: the string has no EntityPath.
        """
        if not self.entity_path:
            raise ConfigurationError(
                "no hybrid connection is named",
                hint="add --hc <name>, or ';EntityPath=<name>' at the end of the connection string",
            )
        return Endpoint(self.host, self.port, self.entity_path)

    def _check(self) -> None:
        if bool(self.key_name) != bool(self.key):
            missing = "SharedAccessKey" if self.key_name else "SharedAccessKeyName"
            raise ConfigurationError(f"the connection string has no {missing}", hint=_HINT)
        if len(self.key or "") > MAX_KEY_CHARS or len(self.key_name or "") > MAX_KEY_CHARS:
            raise ConfigurationError(
                f"SharedAccessKey or SharedAccessKeyName is longer than {MAX_KEY_CHARS} characters", hint=_HINT
            )
        ways = [bool(self.key), bool(self.signature), self.managed_identity]
        if sum(ways) > 1:
            raise ConfigurationError(
                "the connection string has more than one of SharedAccessKey, SharedAccessSignature and Authentication",
                hint="keep one of them",
            )


def _split(text: str) -> dict[str, str]:
    """Return lower-cased field names and their literal values."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, separator, value = part.partition("=")
        key = name.strip().lower()
        if not separator or key not in _FIELDS:
            # The piece may be a key pasted alone, so only known names are ever repeated.
            raise ConfigurationError("the connection string has a part that is no known 'Name=value'", hint=_HINT)
        if key in fields:
            raise ConfigurationError(f"the connection string has {_FIELDS[key]} twice", hint=_HINT)
        fields[key] = value.strip()
    return fields


def _parse_endpoint(text: str) -> tuple[str, int]:
    try:
        url = urlsplit(text if "://" in text else f"sb://{text}")
        host, port = url.hostname, url.port
    except ValueError:  # a bad port or a bad IPv6 literal
        host, port = None, None
    if not host or port == 0:
        raise ConfigurationError("the connection string's Endpoint is no address", hint=_HINT)
    return host, port or 443


def _parse_authentication(text: str) -> bool:
    if not text:
        return False
    if text.replace(" ", "").lower() == "managedidentity":
        return True
    raise ConfigurationError("the connection string's Authentication is not 'Managed Identity'", hint=_HINT)


def _parse_tunnel_key(text: str) -> bytes | None:
    if not text:
        return None
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        raise ConfigurationError(
            f"the connection string's TunnelKey is not {TUNNEL_KEY_BYTES} bytes of base64",
            hint="make one with: python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )
    return key
