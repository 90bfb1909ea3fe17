"""The configuration of a relay as frozen dataclasses; `relay_server.config.file` reads them from TOML.

Each class validates its fields and raises ConfigurationError with the name of the invalid field. Neither messages nor
`repr()` contain keys.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.foreign import escape_controls
from relay_core.value_parsers import MAX_PORT, is_port, is_port_text

MAX_RULES = 12
"""Maximum number of authorization rules for a namespace, and for each hybrid connection, as in Azure."""
MAX_KEY_CHARS = 256
"""Maximum length of a key and of a rule's name in the official clients."""
MAX_PATH_CHARS = 260
"""Maximum length of a hybrid connection's name, as in Azure."""

_PATH = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_.\-]|/(?=[0-9A-Za-z_\-]))*")
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.\-]*[0-9A-Za-z])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")


class Right(enum.Enum):
    """A right that a rule grants."""

    LISTEN = "Listen"
    SEND = "Send"
    MANAGE = "Manage"
    """Implies the other two rights."""


@dataclass(frozen=True)
class Rule:
    """A shared access authorization rule."""

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_KEY_CHARS:
            raise ConfigurationError(f"a rule's name must have 1 to {MAX_KEY_CHARS} characters")
        if not self.rights:
            raise ConfigurationError(
                f"rule '{self.name}' has no rights", hint='add rights, such as: rights = ["Listen"]'
            )
        for which, key in (("primary_key", self.primary_key), ("secondary_key", self.secondary_key)):
            if key is not None and not 0 < len(key) <= MAX_KEY_CHARS:
                raise ConfigurationError(f"{which} of rule '{self.name}' must have 1 to {MAX_KEY_CHARS} characters")

    @property
    def keys(self) -> tuple[str, ...]:
        """The primary key, and the secondary one if there is one."""
        return (self.primary_key,) if self.secondary_key is None else (self.primary_key, self.secondary_key)

    def allows(self, right: Right) -> bool:
        """Return True if this rule grants `right`."""
        return right in self.rights or Right.MANAGE in self.rights


AZURE_ROLES: Mapping[str, frozenset[Right]] = {
    "Azure Relay Listener": frozenset({Right.LISTEN}),
    "Azure Relay Sender": frozenset({Right.SEND}),
    "Azure Relay Owner": frozenset({Right.MANAGE}),
}
"""Rights of Azure's built-in roles."""


@dataclass(frozen=True)
class JwtIssuer:
    """An issuer of JWTs (signed with RS256) that are accepted for every hybrid connection."""

    issuer: str
    """Must equal the token's `iss`."""
    public_key: Path
    """PEM. During a key rotation, there is one entry per key, with the same issuer."""
    audiences: tuple[str, ...] = ("https://relay.azure.net", "https://relay.azure.net/")
    """Accepted values of `aud`; Entra ID issues Relay tokens with either of the defaults."""
    roles: Mapping[str, frozenset[Right]] = field(default_factory=lambda: AZURE_ROLES)
    """Rights of each role in the token's `roles`. Azure looks up role assignments instead, which this relay cannot
    do."""

    def __post_init__(self) -> None:
        if not self.issuer:
            raise ConfigurationError("a JWT issuer has no name")
        if not self.audiences or not all(self.audiences):
            raise ConfigurationError(
                f"JWT issuer '{self.issuer}' has no audiences, so every token from it would be accepted"
            )
        if any(not rights for rights in self.roles.values()) or not self.roles:
            raise ConfigurationError(f"a role of JWT issuer '{self.issuer}' has no rights")


def _check_rules(rules: tuple[Rule, ...], where: str) -> None:
    if len(rules) > MAX_RULES:
        raise ConfigurationError(f"{where} has {len(rules)} rules; the limit is {MAX_RULES}")
    names = [rule.name.lower() for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{where} has two rules named '{twice}'")


@dataclass(frozen=True)
class HybridConnection:
    """A hybrid connection."""

    path: str
    """Its name; case-insensitive, may contain `/`."""
    requires_client_authorization: bool = True
    """True if senders need a token. Listeners always do."""
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if len(self.path) > MAX_PATH_CHARS or not _PATH.fullmatch(self.path):
            raise ConfigurationError(
                f"invalid hybrid connection path: '{escape_controls(self.path[:80])}'",
                hint=f"use up to {MAX_PATH_CHARS} letters, digits and '.', '_', '-', '/', without '/' at either end",
            )
        _check_rules(self.rules, f"hybrid connection '{self.path}'")


@dataclass(frozen=True)
class Limits:
    """Limits and timers (in seconds); the defaults are Azure's where known."""

    accept_timeout: float = 30.0
    """Time limit for a listener to accept or reject a sender."""
    accept_timeout_status: int = 408
    """Status for the sender after that time: 408, or 504 as in the protocol's documentation."""
    http_timeout: float = 60.0
    """Time limit for a listener's response to an HTTP request, and for each pause in a body that is being relayed."""
    ping_interval: float = 30.0
    """Time without received data before a ping is sent; load balancers drop idle connections after 2 to 4 minutes."""
    ping_timeout: float = 20.0
    """Time after the ping until the peer counts as dead."""
    token_expiry_grace: float = 300.0
    """Time for which a listener may stay connected after its token has expired (Azure: about 5 minutes)."""
    recycle_after: float | None = None
    """Time after which each control channel is closed with code 1011, as Azure does every 24 hours."""
    close_timeout: float = 60.0
    """Time limit for the peer's Close frame in a closing handshake."""
    drain_timeout: float = 5.0
    """Time limit for all closing handshakes during a shutdown."""
    max_listeners: int = 25
    """Maximum number of listeners per hybrid connection."""
    max_waiting_senders: int = 500
    """Maximum number of senders per hybrid connection that are waiting for a listener; additional senders receive a
    503. A Send key is enough to make a sender wait, and the senders of one hybrid connection must not displace those of
    another.
    """
    max_unauthenticated: int = 1024
    """Maximum number of connections whose token or rendezvous secret has not been checked yet. When this number is
    reached, a new connection replaces the oldest connection from the address that has the most connections. Each
    connection occupies up to 90 KiB, about 90 MiB in total. Addresses of connected listeners have a second budget of
    this size, so that others cannot displace an agent's rendezvous.
    """
    max_unauthenticated_per_address: int = 512
    """Maximum number of such connections from one IPv4 address or IPv6 network (/64): enough for 200 agents and their
    clients that reconnect together from behind one address. Raise it to `max_unauthenticated` if a load balancer hides
    the clients' addresses."""

    def __post_init__(self) -> None:
        positive = ("accept_timeout", "http_timeout", "ping_interval", "ping_timeout", "close_timeout", "recycle_after")
        for name in (*positive, "token_expiry_grace", "drain_timeout"):
            value = getattr(self, name)
            if value is not None and (value < 0 or (value == 0 and name in positive)):
                raise ConfigurationError(f"limit '{name}' must be {'more than' if name in positive else 'at least'} 0")
        if self.accept_timeout_status not in {408, 504}:
            raise ConfigurationError("limit 'accept_timeout_status' must be 408 or 504")
        for name in ("max_listeners", "max_waiting_senders", "max_unauthenticated", "max_unauthenticated_per_address"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"limit '{name}' must be at least 1")


@dataclass(frozen=True)
class TlsSettings:
    """The server's certificate: two files, or a directory in which one is generated."""

    directory: Path | None = None
    """Directory of the generated CA and server certificate."""
    certificate: Path | None = None
    """PEM file, with the server's certificate first."""
    key: Path | None = None
    """PEM file without a passphrase."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("[tls] must contain both 'certificate' and 'key', or neither of them")
        if self.certificate is None and self.directory is None:
            raise ConfigurationError("[tls] needs 'directory', or 'certificate' and 'key'")


@dataclass(frozen=True)
class ManagementSettings:
    """Where health, metrics and status are served, over plain HTTP without authentication."""

    port: int
    bind: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if self.port != 0 and not is_port(self.port):
            raise ConfigurationError(f"'port' in [management] must be from 0 to {MAX_PORT}")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class RelayConfig:
    """The configuration of a relay."""

    tls: TlsSettings
    hybrid_connections: tuple[HybridConnection, ...]
    rules: tuple[Rule, ...] = ()
    """Rules of the namespace, valid for every hybrid connection."""
    jwt_issuers: tuple[JwtIssuer, ...] = ()
    namespace: str = "localhost"
    """Host name that clients use; the audience of their tokens."""
    aliases: tuple[str, ...] = ()
    """Other host names that are accepted as audience, e.g. `127.0.0.1`."""
    bind: str = "127.0.0.1"
    port: int = 0
    """0 for a free port."""
    public_address: str | None = None
    """`host:port` to which listeners connect for a rendezvous; by default, the namespace and the bound port."""
    honour_listener_selection: bool = True
    """True if the headers AllowedListeners and DisallowedListeners are honoured. Azure may ignore them."""
    limits: Limits = field(default_factory=Limits)
    management: ManagementSettings | None = None

    def __post_init__(self) -> None:
        for name in (self.namespace, *self.aliases):
            if not _HOST.fullmatch(name):
                raise ConfigurationError("'namespace' and 'aliases' must be host names without a scheme or port")
        if self.port != 0 and not is_port(self.port):
            raise ConfigurationError(f"'port' must be from 0 to {MAX_PORT}")
        if self.public_address is not None:
            host, _, port = self.public_address.rpartition(":")
            if not (_HOST.fullmatch(host.strip("[]")) and is_port_text(port)):
                raise ConfigurationError("'public_address' must be host:port")
        paths = [connection.path.lower() for connection in self.hybrid_connections]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise ConfigurationError(f"hybrid connection '{twice}' is defined twice")
        _check_rules(self.rules, "the namespace")
        self._check_public()

    def _check_public(self) -> None:
        """If no rule or issuer restricts a hybrid connection, refuse an address that other machines can reach."""
        if is_loopback(self.bind) or self.rules or self.jwt_issuers:
            return
        for connection in self.hybrid_connections:
            if not connection.rules:
                raise ConfigurationError(
                    f"hybrid connection '{connection.path}' has no rules, and 'bind' is not a loopback address",
                    hint="add a [[hybrid_connection.rule]], a [[rule]] or a [[jwt_issuer]], or bind to 127.0.0.1",
                )

    @property
    def hosts(self) -> tuple[str, ...]:
        """All host names that are accepted as a token's audience."""
        return (self.namespace, *self.aliases)
