"""Reading a relay's configuration from TOML.

    [relay]
    namespace = "localhost"              # the host name clients use
    aliases = ["127.0.0.1"]
    bind = "127.0.0.1"
    port = 8443
    public_address = "localhost:8443"    # what listeners are told to dial
    honour_listener_selection = true     # false: pick at random, whatever the selection headers ask for

    [tls]
    directory = "tls"                    # or: certificate = "server.pem", key = "server.key"

    [limits]
    accept_timeout = 30                  # every field of config.Limits

    [[rule]]                             # of the namespace
    name = "root"
    rights = ["Manage"]
    primary_key = "..."
    secondary_key = "..."

    [[jwt_issuer]]                       # tokens instead of keys, as of Entra ID
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

Relative paths count from the file's directory. Bad examples: an unknown field (probably a typing error that would
otherwise weaken the relay in silence), `port = "8443"`, `rights = ["Read"]`.
"""

from __future__ import annotations

import difflib
import logging
import stat
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from relay_core.errors import ConfigurationError
from relay_server.config.model import HybridConnection, JwtIssuer, Limits, RelayConfig, Right, Rule, TlsSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["load", "parse"]

logger = logging.getLogger(__name__)


def load(path: Path) -> RelayConfig:
    """Read a configuration file.

    Raises:
        ConfigurationError: the file is missing, unreadable or wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigurationError(
            f"cannot read {path}: {reason}", hint="make one with: relay-server init DIR --hc NAME"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("%s holds keys and other users may read it; type: chmod 600 %s", path, path)
    try:
        return parse(text, directory=path.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.sentence}", hint=error.hint) from error


def parse(text: str, *, directory: Path) -> RelayConfig:
    """Read a configuration's text.

    Args:
        text: TOML.
        directory: Where relative paths in it count from.

    Raises:
        ConfigurationError: names the table and the field, and never a value.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser's own message may quote the text around the fault: only the place is repeated.
        place = str(error).rpartition("(")[2].rstrip(")") if "(at " in str(error) else "unknown place"
        raise ConfigurationError(f"this is no TOML: error {place}", hint="texts stand in double quotes") from None
    except RecursionError:
        raise ConfigurationError("this is no TOML that can be read: it is nested too deeply") from None
    root = _Table(document, "the file")
    relay, tls, limits = (root.table(name) for name in ("relay", "tls", "limits"))
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
    )
    for table in (root, relay, tls, limits):
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
    whole = {"accept_timeout_status", "max_listeners"}
    given: dict[str, Any] = {
        item.name: table.number(item.name, 0, whole=item.name in whole)
        for item in fields(Limits)
        if item.name in table.values
    }
    return Limits(**given)


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
            f"{table.name}: '{field}' names something unknown ({len(unknown)} of {len(names)})",
            hint='rights are "Listen", "Send" and "Manage"',
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
    """One TOML table: typed access, and a complaint about every field that nobody asked for."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self.values = values
        self.name = name
        self._known: set[str] = set()

    def table(self, field: str) -> _Table:
        """Return the table `[field]`, empty if it is missing."""
        return _Table(self._get(field, dict, {}, "a table"), f"[{field}]")

    def tables(self, field: str) -> list[_Table]:
        """Return the tables `[[field]]`."""
        found: list[Any] = self._get(field, list, [], "a list of tables")
        if not all(isinstance(item, dict) for item in found):
            raise self._wrong(field, "a list of tables")
        prefix = "" if self.name == "the file" else f"{self.name} "
        return [_Table(item, f"{prefix}[[{field}]] number {index}") for index, item in enumerate(found, 1)]

    def text(self, field: str, default: str | None = None) -> str:
        """Return a text that must be there unless it has a default."""
        value: str | None = self._get(field, str, default, "a text")
        if value is None:
            raise ConfigurationError(f"{self.name}: '{field}' is missing")
        return value

    def optional_text(self, field: str) -> str | None:
        """Return a text or None."""
        value: str | None = self._get(field, str, None, "a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts, empty if it is missing."""
        found: list[Any] = self._get(field, list, [], "a list of texts")
        if not all(isinstance(item, str) for item in found):
            raise self._wrong(field, "a list of texts")
        return tuple(found)

    def flag(self, field: str, *, default: bool) -> bool:
        """Return a boolean."""
        value: bool = self._get(field, bool, default, "true or false")
        return value

    def number(self, field: str, default: float, *, whole: bool = False) -> float:
        """Return a number; TOML's nan and inf are none."""
        what = "a whole number" if whole else "a number"
        value = self._get(field, int if whole else (int, float), default, what)
        if isinstance(value, bool) or not -1e12 < value < 1e12:
            raise self._wrong(field, what)
        return float(value) if not whole else int(value)

    def finish(self) -> None:
        """Complain about fields that were not read."""
        for field in self.values:
            if field not in self._known:
                close = difflib.get_close_matches(field, self._known, n=1)
                raise ConfigurationError(
                    f"{self.name}: the field '{field[:60]}' is unknown",
                    hint=f"did you mean '{close[0]}'?" if close else f"known are: {', '.join(sorted(self._known))}",
                )

    def _get(self, field: str, kind: type | tuple[type, ...], default: Any, what: str) -> Any:
        self._known.add(field)
        value = self.values.get(field, default)
        if field in self.values and not isinstance(value, kind):
            raise self._wrong(field, what)
        return value

    def _wrong(self, field: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name}: '{field}' must be {what}")
