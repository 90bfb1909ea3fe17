"""What a relay serves and within which limits, as values; `config_file` reads them from TOML.

A config that contradicts itself cannot be built: every class checks its own fields and raises ConfigurationError,
naming the field and never a key. Keys stay out of `repr()`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.values import MAX_PORT, is_port, is_port_text

__all__ = [
    "AZURE_ROLES",
    "DelayProfile",
    "HybridConnection",
    "JwtIssuer",
    "Limits",
    "RelayConfig",
    "Right",
    "Rule",
    "TlsSettings",
]

MAX_RULES = 12
"""Authorization rules per level, as in Azure."""
MAX_KEY_CHARS = 256
"""Longest key and rule name that the official clients can use."""
MAX_PATH_CHARS = 260
"""Longest name of a hybrid connection, as in Azure."""

_PATH = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_.\-]|/(?=[0-9A-Za-z_\-]))*")
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.\-]*[0-9A-Za-z])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")


class Right(enum.Enum):
    """What a rule allows."""

    LISTEN = "Listen"
    SEND = "Send"
    MANAGE = "Manage"
    """Implies the other two."""


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
            raise ConfigurationError(f"rule '{self.name}' has no rights", hint='e.g. rights = ["Listen"]')
        for which, key in (("primary_key", self.primary_key), ("secondary_key", self.secondary_key)):
            if key is not None and not 0 < len(key) <= MAX_KEY_CHARS:
                raise ConfigurationError(f"{which} of rule '{self.name}' must have 1 to {MAX_KEY_CHARS} characters")

    @property
    def keys(self) -> tuple[str, ...]:
        """The primary key, then the secondary one if there is one."""
        return (self.primary_key,) if self.secondary_key is None else (self.primary_key, self.secondary_key)

    def allows(self, right: Right) -> bool:
        """Whether a holder of this rule's key has `right`."""
        return right in self.rights or Right.MANAGE in self.rights


AZURE_ROLES: Mapping[str, frozenset[Right]] = {
    "Azure Relay Listener": frozenset({Right.LISTEN}),
    "Azure Relay Sender": frozenset({Right.SEND}),
    "Azure Relay Owner": frozenset({Right.MANAGE}),
}
"""What Azure's built-in roles allow."""


@dataclass(frozen=True)
class JwtIssuer:
    """Somebody whose tokens (JWTs, signed with RS256) count here, for every hybrid connection."""

    issuer: str
    """Compared with the token's `iss`, character by character."""
    public_key: Path
    """PEM; a new key is another entry of the same issuer."""
    audiences: tuple[str, ...] = ("https://relay.azure.net", "https://relay.azure.net/")
    """One of them must be in `aud`; Entra ID issues Relay tokens with either of these."""
    roles: Mapping[str, frozenset[Right]] = field(default_factory=lambda: AZURE_ROLES)
    """What each entry of the token's `roles` allows. Azure keeps role assignments beside the tokens; here they are in
    them."""

    def __post_init__(self) -> None:
        if not self.issuer:
            raise ConfigurationError("a JWT issuer has no name")
        if not self.audiences or not all(self.audiences):
            raise ConfigurationError(f"JWT issuer '{self.issuer}' has no audiences: every token of it would be good")
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
    """One hybrid connection."""

    path: str
    """Its name; may contain `/`, and is compared without regard to case."""
    requires_client_authorization: bool = True
    """Whether senders need a token. Listeners always do."""
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if len(self.path) > MAX_PATH_CHARS or not _PATH.fullmatch(self.path):
            raise ConfigurationError(
                "the path of a hybrid connection is not usable",
                hint=f"letters, digits and . _ - / up to {MAX_PATH_CHARS} characters, no '/' at either end",
            )
        _check_rules(self.rules, f"hybrid connection '{self.path}'")


@dataclass(frozen=True)
class Limits:
    """Times in seconds, and numbers; the defaults are Azure's where Azure has one."""

    accept_timeout: float = 30.0
    """How long a sender waits for the listener that was told of it."""
    accept_timeout_status: int = 408
    """What it is told afterwards: 408, or 504 like the protocol's documentation."""
    ping_interval: float = 30.0
    """Silence after which a peer is pinged; load balancers forget a silent connection after 2 to 4 minutes."""
    ping_timeout: float = 20.0
    """Silence after the ping that means the peer is dead."""
    token_expiry_grace: float = 300.0
    """How long a listener may stay after its token expired (Azure: about 5 minutes)."""
    recycle_after: float | None = None
    """Close each control channel with 1011 after this long; Azure does it every 24 hours."""
    close_timeout: float = 60.0
    """How long the second Close may take after the first."""
    drain_timeout: float = 5.0
    """How long a shutdown waits for closing handshakes."""
    max_listeners: int = 25
    """Listeners per hybrid connection."""

    def __post_init__(self) -> None:
        positive = ("accept_timeout", "ping_interval", "ping_timeout", "close_timeout", "recycle_after")
        for name in (*positive, "token_expiry_grace", "drain_timeout"):
            value = getattr(self, name)
            if value is not None and (value < 0 or (value == 0 and name in positive)):
                raise ConfigurationError(f"limit '{name}' must be {'more than' if name in positive else 'at least'} 0")
        if self.accept_timeout_status not in {408, 504}:
            raise ConfigurationError("limit 'accept_timeout_status' must be 408 or 504")
        if self.max_listeners < 1:
            raise ConfigurationError("limit 'max_listeners' must be at least 1")


@dataclass(frozen=True)
class TlsSettings:
    """Where the server's certificate comes from: two files, or a directory that one is generated in."""

    directory: Path | None = None
    """Keeps the generated CA and server certificate between runs."""
    certificate: Path | None = None
    """PEM, the server's certificate first."""
    key: Path | None = None
    """PEM, without a passphrase."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("[tls] needs both 'certificate' and 'key', or neither")
        if self.certificate is None and self.directory is None:
            raise ConfigurationError("[tls] needs 'directory', or 'certificate' and 'key'")


@dataclass(frozen=True)
class DelayProfile:
    """Latencies that a relay on this machine lacks and a cloud service has, in seconds."""

    lane: float = 0.0
    """One way between the relay and any client."""
    handshake_round_trips: int = 2
    """TCP and TLS 1.3 handshakes, which the relay cannot slow down itself: charged before the first answer."""
    authorization: float = 0.0
    matchmaking: float = 0.0

    @classmethod
    def azure(cls) -> DelayProfile:
        """Figures measured on the live service."""
        return cls(lane=0.030, authorization=0.010, matchmaking=0.050)


@dataclass(frozen=True)
class RelayConfig:
    """Everything a relay needs to know."""

    tls: TlsSettings
    hybrid_connections: tuple[HybridConnection, ...]
    rules: tuple[Rule, ...] = ()
    """Rules of the namespace: good for every hybrid connection."""
    jwt_issuers: tuple[JwtIssuer, ...] = ()
    namespace: str = "localhost"
    """The host name clients use; tokens are made for it."""
    aliases: tuple[str, ...] = ()
    """Other host names that tokens may be made for, e.g. `127.0.0.1`."""
    bind: str = "127.0.0.1"
    port: int = 0
    """0 for a free one."""
    public_address: str | None = None
    """`host:port` that listeners are told to dial; by default the namespace and the port that was bound."""
    honour_listener_selection: bool = True
    """Whether the Allowed- and DisallowedListeners headers count; Azure may or may not."""
    limits: Limits = field(default_factory=Limits)
    delays: DelayProfile | None = None

    def __post_init__(self) -> None:
        for name in (self.namespace, *self.aliases):
            if not _HOST.fullmatch(name):
                raise ConfigurationError("'namespace' and 'aliases' must be host names without a scheme or port")
        if self.port != 0 and not is_port(self.port):
            raise ConfigurationError(f"'port' must be 0 to {MAX_PORT}")
        if self.public_address is not None:
            host, _, port = self.public_address.rpartition(":")
            if not (_HOST.fullmatch(host.strip("[]")) and is_port_text(port)):
                raise ConfigurationError("'public_address' must be host:port")
        paths = [connection.path.lower() for connection in self.hybrid_connections]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise ConfigurationError(f"hybrid connection '{twice}' is defined twice")
        _check_rules(self.rules, "the namespace")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host name that a token may name."""
        return (self.namespace, *self.aliases)
