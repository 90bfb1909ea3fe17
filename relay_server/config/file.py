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

import dataclasses
import logging
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_type_hints

from relay_core.errors import ConfigurationError
from relay_core.value_parsers import closest
from relay_server.config import model

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

logger = logging.getLogger(__name__)

T = TypeVar("T")


def load(path: Path) -> model.RelayConfig:
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


def parse(text: str, *, directory: Path) -> model.RelayConfig:
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
    root = _Table(document, "the file", directory)
    relay, tls, limits, management = (root.table(name) for name in ("relay", "tls", "limits", "management"))
    tls.values.setdefault("directory", "tls")
    given = {
        "hybrid_connections": tuple(_connection(table) for table in root.tables("hybrid_connection")),
        "rules": _rules(root),
        "jwt_issuers": tuple(_issuer(table) for table in root.tables("jwt_issuer")),
        "management": management.read(model.ManagementSettings) if management.values else None,
    }
    root.check_known()
    return relay.read(model.RelayConfig, tls=tls.read(model.TlsSettings), limits=limits.read(model.Limits), **given)


def _connection(table: _Table) -> model.HybridConnection:
    return table.read(model.HybridConnection, rules=_rules(table))


def _rules(table: _Table) -> tuple[model.Rule, ...]:
    rules = table.tables("rule")
    for rule in rules:
        rule.values.setdefault("rights", [])  # `Rule` explains what is missing
    return tuple(rule.read(model.Rule) for rule in rules)


def _issuer(table: _Table) -> model.JwtIssuer:
    roles = table.table("roles")
    given = (
        {"roles": {name: roles.value(name, frozenset[model.Right]) for name in roles.values}} if roles.values else {}
    )
    for name, empty in (("roles", {}), ("audiences", [])):  # then the defaults apply
        if table.values.get(name) == empty:
            del table.values[name]
    return table.read(model.JwtIssuer, **given)


_FORMS: Mapping[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "a string"),
    Path: (str, "a string"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    tuple[str, ...]: (list, "a list of strings"),
    frozenset[model.Right]: (list, "a list of strings"),
}
"""For each type of a field: its types in TOML, and what it is called in an error."""


class _Table:
    """A TOML table with typed access to its fields.

    Args:
        values: Its fields.
        name: What errors call it.
        directory: Base of relative paths.
    """

    def __init__(self, values: dict[str, Any], name: str, directory: Path) -> None:
        self.values = values
        self._name = name
        self._directory = directory
        self._known: set[str] = set()

    def table(self, field: str) -> _Table:
        """Return the table `[field]`; empty if it is missing."""
        return _Table(self._get(field, dict, {}, "a table"), f"[{field}]", self._directory)

    def tables(self, field: str) -> list[_Table]:
        """Return the tables `[[field]]`."""
        found: list[Any] = self._get(field, list, [], "a list of tables")
        if not all(isinstance(item, dict) for item in found):
            raise self._wrong(field, "a list of tables")
        prefix = "" if self._name == "the file" else f"{self._name} "
        return [
            _Table(item, f"{prefix}[[{field}]] number {index}", self._directory) for index, item in enumerate(found, 1)
        ]

    def read(self, kind: type[T], **given: Any) -> T:
        """Return a record of the fields in this table.

        Args:
            kind: A dataclass; the types of the fields that are read are those in `_FORMS`, or None.
            given: The fields that have been read elsewhere.
        """
        forms = get_type_hints(kind)
        for field in dataclasses.fields(cast("Any", kind)):
            if field.name in given:
                continue
            self._known.add(field.name)
            if field.name in self.values:
                given[field.name] = self.value(field.name, forms[field.name])
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ConfigurationError(f"{self._name}: '{field.name}' is missing")
        self.check_known()
        return kind(**given)

    def value(self, field: str, form: Any) -> Any:
        """Return a field as a type in `_FORMS`, or as the type in `X | None`."""
        form = get_args(form)[0] if isinstance(form, UnionType) else form
        kinds, what = _FORMS[form]
        value = self._get(field, kinds, None, what)
        is_number = form in {int, float}
        if is_number and (isinstance(value, bool) or not -1e12 < value < 1e12):
            raise self._wrong(field, what)
        if kinds is list and not all(isinstance(item, str) for item in value):
            raise self._wrong(field, what)
        if form is Path:
            return self._directory / value
        if form == frozenset[model.Right]:
            return self._rights(field, value)
        return form(value) if is_number else tuple(value) if kinds is list else value

    def check_known(self) -> None:
        """Raise ConfigurationError for a field that was never read."""
        for field in self.values:
            if field not in self._known:
                close = closest(field, self._known)
                raise ConfigurationError(
                    f"{self._name}: unknown field '{field[:60]}'",
                    hint=f"did you mean '{close}'?" if close else f"use one of: {', '.join(sorted(self._known))}",
                )

    def _rights(self, field: str, names: list[str]) -> frozenset[model.Right]:
        known = {right.value.lower(): right for right in model.Right}
        if unknown := [name for name in names if name.lower() not in known]:
            raise ConfigurationError(
                f"{self._name}: '{field}' has unknown values ({len(unknown)} of {len(names)})",
                hint='use only "Listen", "Send" and "Manage"',
            )
        return frozenset(known[name.lower()] for name in names)

    def _get(self, field: str, kind: type | tuple[type, ...], default: Any, what: str) -> Any:
        self._known.add(field)
        value = self.values.get(field, default)
        if field in self.values and not isinstance(value, kind):
            raise self._wrong(field, what)
        return value

    def _wrong(self, field: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._name}: '{field}' must be {what}")
