"""Connection strings: `Key=Value` pairs separated by `;`, and the tunnel key, which may be one of them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from relay_core.errors import ConfigurationError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.family import MAX_SIZE, FamilyName

# The tunnel key: 32 random bytes that agent and client share and the relay never sees, as base64 in text.

TUNNEL_KEY_BYTES = 32


def parse_tunnel_key(text: str, subject: str) -> bytes:
    """Return the key's bytes.

    Args:
        text: The key as base64.
        subject: Subject of the error message: the key, with its source.

    Raises:
        ConfigurationError: The text is not a tunnel key. The message does not quote it.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        raise ConfigurationError(
            f"{subject} is not {TUNNEL_KEY_BYTES} bytes encoded as base64",
            hint="create one with: python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )
    return key


# Connection strings: `Key=Value` pairs separated by `;`.
#
#     Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=<key>;EntityPath=myhc
#     Endpoint=sb://localhost:8443;SharedAccessSignature=SharedAccessSignature sr=...;EntityPath=myhc
#     Endpoint=sb://contoso.servicebus.windows.net/;EntityPath=myhc;Authentication=Managed Identity
#     ...;EntityPath=myhc;TunnelKey=<44 characters of base64>      field of relay-debug, 32 bytes, not sent to the relay
#     ...;SharedAccessKey=<key>;EntityPath=myhc:3                  a family with one key; see relay_core.hyco.family
#     ...;SharedAccessKey=<key>;EntityPath=myhc;FamilyKeys=<key of myhc-1>,<key of myhc-2>
#                                                                  a family with several keys
#
# Field names are case-insensitive and may come in any order. Invalid: no `Endpoint`; a key name without a key; a key
# and a signature; an unknown field; a repeated field; family keys that do not match the size. Error messages never
# contain a value from the string.

MAX_KEY_CHARS = 256
"""Maximum length of a key and of a key name in the official clients."""

_HINT = (
    "use the format 'Endpoint=sb://<namespace>.servicebus.windows.net/;SharedAccessKeyName=<rule>;"
    "SharedAccessKey=<key>;EntityPath=<hybrid connection>'; copy it again and, in a shell, put it in quotes"
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
    "familykeys": "FamilyKeys",
}


@dataclass(frozen=True)
class ConnectionString:
    """A parsed connection string; `repr()` omits secrets."""

    host: str
    """Namespace host name, lower case."""
    port: int = 443
    entity_path: str | None = None
    """Hybrid connection name, or None for a namespace-level string."""
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    """A signed token (`SharedAccessSignature sr=...`), given instead of a key."""
    managed_identity: bool = False
    tunnel_key: bytes | None = field(default=None, repr=False)
    """32 bytes shared by agent and client, unknown to the relay."""
    family_size: int | None = None
    """Number of hybrid connections in the family, or None if the string does not give it."""
    family_keys: tuple[str, ...] = field(default=(), repr=False)
    """The keys of the second and all further hybrid connections of a family, where each has its own rule."""

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Parse a connection string as the portal, `az` or the SDKs write it; quotes around it are ignored.

        Raises:
            ConfigurationError: The string is invalid. The message names the field, never its value.
        """
        text = text.strip()
        fields = _split(text[1:-1] if text[:1] in {"'", '"'} and text[:1] == text[-1:] else text)
        if "endpoint" not in fields:
            raise ConfigurationError("the connection string has no Endpoint", hint=_HINT)
        host, port = _parse_endpoint(fields["endpoint"])
        tunnel_key = fields.get("tunnelkey")
        named = FamilyName.parse(fields.get("entitypath", ""))
        family_keys = tuple(fields["familykeys"].split(",")) if fields.get("familykeys") else ()
        parsed = cls(
            host=host,
            port=port,
            entity_path=named.path or None,
            key_name=fields.get("sharedaccesskeyname") or None,
            key=fields.get("sharedaccesskey") or None,
            signature=fields.get("sharedaccesssignature") or None,
            managed_identity=_parse_authentication(fields.get("authentication", "")),
            tunnel_key=parse_tunnel_key(tunnel_key, "the connection string's TunnelKey") if tunnel_key else None,
            family_size=named.size or (1 + len(family_keys) if family_keys else None),
            family_keys=family_keys,
        )
        parsed._check()
        return parsed

    def with_entity(self, path: str) -> ConnectionString:
        """Return these credentials for the hybrid connection or family `path`, as given with `--hc`.

        Raises:
            ConfigurationError: The string names a different hybrid connection or a different size.
        """
        wanted = FamilyName.parse(path)
        # The service's entity names are case-insensitive.
        if self.entity_path and self.entity_path.lower() != wanted.path.lower():
            raise ConfigurationError(
                f"the connection string is for hybrid connection '{self.entity_path}', not for '{wanted.path}'",
                hint=f"use --hc {self.entity_path}, or a connection string for '{wanted.path}' or for the whole "
                "namespace",
            )
        changed = replace(self, entity_path=wanted.path, family_size=wanted.size or self.family_size)
        _check_family(changed)
        return changed

    def endpoint(self) -> Endpoint:
        """Return the address of the hybrid connection.

        Raises:
            ConfigurationError: The string has no EntityPath.
        """
        if not self.entity_path:
            raise ConfigurationError(
                "no hybrid connection given",
                hint="add --hc <name>, or append ';EntityPath=<name>' to the connection string",
            )
        return Endpoint(self.host, self.port, self.entity_path, self.family_size or 1)

    def _check(self) -> None:
        if bool(self.key_name) != bool(self.key):
            missing = "SharedAccessKey" if self.key_name else "SharedAccessKeyName"
            raise ConfigurationError(f"the connection string has no {missing}", hint=_HINT)
        if len(self.key or "") > MAX_KEY_CHARS or len(self.key_name or "") > MAX_KEY_CHARS:
            raise ConfigurationError(
                f"SharedAccessKey or SharedAccessKeyName is longer than {MAX_KEY_CHARS} characters", hint=_HINT
            )
        # Silently choosing one could use a credential without the required right.
        ways = [bool(self.key), bool(self.signature), self.managed_identity]
        if sum(ways) > 1:
            raise ConfigurationError(
                "the connection string has more than one of SharedAccessKey, SharedAccessSignature and Authentication",
                hint="keep one of them",
            )
        _check_family(self)


def _check_family(parsed: ConnectionString) -> None:
    if not parsed.family_keys:
        return
    if not parsed.key or not all(0 < len(key) <= MAX_KEY_CHARS for key in parsed.family_keys):
        raise ConfigurationError("the connection string's FamilyKeys are incomplete", hint=_HINT)
    size = 1 + len(parsed.family_keys)
    if size != parsed.family_size or size > MAX_SIZE:
        raise ConfigurationError(
            f"the connection string has keys for {size} hybrid connections, but the family has {parsed.family_size}",
            hint=f"omit the size from the name; the largest size is {MAX_SIZE}",
        )


def _split(text: str) -> dict[str, str]:
    """Return lower-case field names and their values."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, separator, value = part.partition("=")  # the first "=": keys are base64 and may end with "="
        key = name.strip().lower()
        if not separator or key not in _FIELDS:
            # This part may be a key that was pasted alone, so the message does not quote it.
            raise ConfigurationError("the connection string has an unknown or malformed field", hint=_HINT)
        # Whichever value were used, the user may have intended the other one.
        if key in fields:
            raise ConfigurationError(f"the connection string has {_FIELDS[key]} twice", hint=_HINT)
        fields[key] = value.strip()
    return fields


def _parse_endpoint(text: str) -> tuple[str, int]:
    try:
        url = urlsplit(text if "://" in text else f"sb://{text}")
        host, port = url.hostname, url.port
    except ValueError:  # invalid port or IPv6 literal
        host, port = None, None
    if not host or port == 0:
        raise ConfigurationError("the connection string's Endpoint is not a valid address", hint=_HINT)
    return host, port or 443


def _parse_authentication(text: str) -> bool:
    if not text:
        return False
    if text.replace(" ", "").lower() == "managedidentity":  # as the .NET client compares it
        return True
    raise ConfigurationError("the connection string's Authentication is not 'Managed Identity'", hint=_HINT)
