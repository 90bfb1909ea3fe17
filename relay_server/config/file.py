"""The TOML configuration file of a relay.

    [relay]
    namespace = "localhost"              # the host name clients use
    aliases = ["127.0.0.1"]
    bind = "127.0.0.1"
    port = 8443
    public_address = "localhost:8443"    # where listeners connect for a rendezvous
    honour_listener_selection = true     # false: select at random, whatever the selection headers contain

    [tls]
    directory = "tls"                    # or: certificate = "server.pem", key = "server.key"

    [limits]
    accept_timeout = 30                  # every field of config.Limits

    [management]                         # plain HTTP: /healthz, /metrics and /status
    port = 9091
    bind = "127.0.0.1"

    [[rule]]                             # of the namespace
    name = "root"
    rights = ["Manage"]
    primary_key = "..."
    secondary_key = "..."

    [[jwt_issuer]]                       # tokens instead of keys, such as those from Entra ID
    issuer = "https://sts.example/"
    public_key = "issuer.pem"
    audiences = ["https://relay.azure.net", "https://relay.azure.net/"]

    [jwt_issuer.roles]                   # default: Azure's roles for Relay
    "Azure Relay Listener" = ["Listen"]

    [[hybrid_connection]]
    path = "myhc"
    requires_client_authorization = true

    [[hybrid_connection.rule]]
    name = "agent"
    rights = ["Listen"]
    primary_key = "..."

Relative paths are relative to the file's directory. Invalid: an unknown field (a misspelled one, if ignored, could
silently weaken the relay), `port = "8443"`, `rights = ["Read"]`.
"""

from __future__ import annotations

import logging
import stat
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from relay_core.errors import ConfigurationError
from relay_core.value_parsers import closest
from relay_server.config.model import (
    HybridConnection,
    JwtIssuer,
    Limits,
    ManagementSettings,
    RelayConfig,
    Right,
    Rule,
    TlsSettings,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

logger = logging.getLogger(__name__)


def load(path: Path) -> RelayConfig:
    """Read a configuration file.

    Raises:
        ConfigurationError: The file is missing, unreadable or invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"cannot read {path}: {reason}", hint="create one with: relay-server init DIR --hc NAME"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("other users can read %s, which contains keys; run: chmod 600 %s", path, path)
    try:
        return parse(text, directory=path.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.sentence}", hint=error.hint) from error


def parse(text: str, *, directory: Path) -> RelayConfig:
    """Parse the text of a configuration file.

    Args:
        text: TOML.
        directory: Base of relative paths.

    Raises:
        ConfigurationError: The configuration is invalid. The message names the table and the field, never a value.
    """
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or int's for thousands of digits
        # Only the position is reported: the parser's own message may quote a key.
        place = str(error).rpartition("(")[2].rstrip(")") if "(at " in str(error) else "at an unknown position"
        raise ConfigurationError(f"invalid TOML {place}", hint="quote strings") from None
    except RecursionError:
        raise ConfigurationError("invalid TOML: nested too deeply") from None
    root = _Table(document, "the file")
    relay, tls, limits, management = (root.table(name) for name in ("relay", "tls", "limits", "management"))
    config = RelayConfig(
        tls=_parse_tls(tls, directory),
        hybrid_connections=tuple(_parse_connection(table) for table in root.tables("hybrid_connection")),
        rules=tuple(_parse_rule(table) for table in root.tables("rule")),
        jwt_issuers=tuple(_parse_issuer(table, directory) for table in root.tables("jwt_issuer")),
        namespace=relay.text("namespace", "localhost"),
        aliases=relay.texts("aliases"),
        bind=relay.text("bind", "127.0.0.1"),
        port=int(relay.number("port", 0, whole=True)),
        public_address=relay.optional_text("public_address"),
        honour_listener_selection=relay.flag("honour_listener_selection", default=True),
        limits=_parse_limits(limits),
        management=_parse_management(management),
    )
    for table in (root, relay, tls, limits, management):
        table.finish()
    return config


def _parse_tls(table: _Table, directory: Path) -> TlsSettings:
    certificate, key = table.optional_text("certificate"), table.optional_text("key")
    return TlsSettings(
        directory=directory / table.text("directory", "tls"),
        certificate=None if certificate is None else directory / certificate,
        key=None if key is None else directory / key,
    )


def _parse_limits(table: _Table) -> Limits:
    whole = {item.name for item in fields(Limits) if isinstance(item.default, int)}
    given: dict[str, Any] = {
        item.name: table.number(item.name, 0, whole=item.name in whole)
        for item in fields(Limits)
        if item.name in table.values
    }
    return Limits(**given)


def _parse_management(table: _Table) -> ManagementSettings | None:
    if not table.values:
        return None
    if "port" not in table.values:
        raise ConfigurationError("[management]: 'port' is missing")
    return ManagementSettings(port=int(table.number("port", 0, whole=True)), bind=table.text("bind", "127.0.0.1"))


def _parse_connection(table: _Table) -> HybridConnection:
    path = table.text("path")
    connection = HybridConnection(
        path=path,
        requires_client_authorization=table.flag("requires_client_authorization", default=True),
        rules=tuple(_parse_rule(rule) for rule in table.tables("rule")),
    )
    table.finish()
    return connection


def _parse_issuer(table: _Table, directory: Path) -> JwtIssuer:
    roles = table.table("roles")
    fields: dict[str, Any] = {}
    if roles.values:
        fields["roles"] = {name: _parse_rights(roles, name) for name in roles.values}
    if audiences := table.texts("audiences"):
        fields["audiences"] = audiences
    issuer = JwtIssuer(table.text("issuer"), directory / table.text("public_key"), **fields)
    table.finish()
    return issuer


def _parse_rights(table: _Table, field: str) -> frozenset[Right]:
    known = {right.value.lower(): right for right in Right}
    names = table.texts(field)
    if unknown := [name for name in names if name.lower() not in known]:
        raise ConfigurationError(
            f"{table.name}: '{field}' has unknown values ({len(unknown)} of {len(names)})",
            hint='use only "Listen", "Send" and "Manage"',
        )
    return frozenset(known[name.lower()] for name in names)


def _parse_rule(table: _Table) -> Rule:
    rule = Rule(
        name=table.text("name"),
        rights=_parse_rights(table, "rights"),
        primary_key=table.text("primary_key"),
        secondary_key=table.optional_text("secondary_key"),
    )
    table.finish()
    return rule


class _Table:
    """A TOML table with typed access to its fields; `finish` reports fields that were never read."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self.values = values
        self.name = name
        self._known: set[str] = set()

    def table(self, field: str) -> _Table:
        """Return the table `[field]`; empty if it is missing."""
        return _Table(self._get(field, dict, {}, "a table"), f"[{field}]")

    def tables(self, field: str) -> list[_Table]:
        """Return the tables `[[field]]`."""
        found: list[Any] = self._get(field, list, [], "a list of tables")
        if not all(isinstance(item, dict) for item in found):
            raise self._wrong(field, "a list of tables")
        prefix = "" if self.name == "the file" else f"{self.name} "
        return [_Table(item, f"{prefix}[[{field}]] number {index}") for index, item in enumerate(found, 1)]

    def text(self, field: str, default: str | None = None) -> str:
        """Return a string, which is required unless there is a default."""
        value: str | None = self._get(field, str, default, "a string")
        if value is None:
            raise ConfigurationError(f"{self.name}: '{field}' is missing")
        return value

    def optional_text(self, field: str) -> str | None:
        """Return a string or None."""
        value: str | None = self._get(field, str, None, "a string")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings; empty if it is missing."""
        found: list[Any] = self._get(field, list, [], "a list of strings")
        if not all(isinstance(item, str) for item in found):
            raise self._wrong(field, "a list of strings")
        return tuple(found)

    def flag(self, field: str, *, default: bool) -> bool:
        """Return a boolean."""
        value: bool = self._get(field, bool, default, "true or false")
        return value

    def number(self, field: str, default: float, *, whole: bool = False) -> float:
        """Return a finite number."""
        what = "a whole number" if whole else "a number"
        value = self._get(field, int if whole else (int, float), default, what)
        if isinstance(value, bool) or not -1e12 < value < 1e12:
            raise self._wrong(field, what)
        return float(value) if not whole else int(value)

    def finish(self) -> None:
        """Raise ConfigurationError for a field that was never read."""
        for field in self.values:
            if field not in self._known:
                close = closest(field, self._known)
                raise ConfigurationError(
                    f"{self.name}: unknown field '{field[:60]}'",
                    hint=f"did you mean '{close}'?" if close else f"use one of: {', '.join(sorted(self._known))}",
                )

    def _get(self, field: str, kind: type | tuple[type, ...], default: Any, what: str) -> Any:
        self._known.add(field)
        value = self.values.get(field, default)
        if field in self.values and not isinstance(value, kind):
            raise self._wrong(field, what)
        return value

    def _wrong(self, field: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name}: '{field}' must be {what}")
