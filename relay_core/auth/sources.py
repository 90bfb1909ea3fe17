"""Sources of a setting and the choice among them, and the local sources of the connection string."""

from __future__ import annotations

import codecs
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from relay_core.access_settings import (
    CONNECTION_STRING_FILE_VARIABLE,
    CONNECTION_STRING_VARIABLE,
    OLD_NAME_VARIABLE,
    OLD_STRING_VARIABLE,
    AccessSettings,
)
from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import ConnectionString
from relay_core.json_values import text

logger = logging.getLogger(__name__)


# Files that contain a secret and must be readable by their owner only.

MAX_SECRET_BYTES = 64 * 1024
"""Limits memory usage if the path is wrong; a connection string has a few hundred bytes."""


def read_secret_file(path: str) -> str:
    """Return the contents of a secret file, in UTF-8 or UTF-16, without surrounding whitespace.

    Raises:
        ConfigurationError: The file is missing, too large, not text, or readable by other users (not checked on
            Windows, where file modes do not show this).
    """
    facts, data = _read(path, "check the path")
    mode = stat.S_IMODE(facts.st_mode)
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"other users can read {path} (mode {mode:04o}), which contains a secret",
            hint=f"run: chmod 600 {path}",
        )
    if len(data) > MAX_SECRET_BYTES:
        raise ConfigurationError(f"{path} is too large for a secret", hint="check the path")
    has_mark = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell writes files
    try:
        return data.decode("utf-16" if has_mark else "utf-16-le" if b"\0" in data else "utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path} is not a text file", hint="use a file that contains only the secret, on one line"
        ) from None


def _read(path: str | Path, hint: str) -> tuple[os.stat_result, bytes]:
    """Return the facts about an open file and its content, as far as it can be that of a secret."""
    try:
        with Path(path).open("rb") as handle:
            return os.fstat(handle.fileno()), handle.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint=hint) from None


# Sources of a setting, and the choice among them.

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Source(Generic[T_co]):
    """A possible source of a value."""

    name: str
    """Name known to the user: an option, a variable, a file or a service."""
    finding: str
    """Short description of what the source contains, without secrets; determined without network access."""
    read: Callable[[], T_co] | None = None
    """Returns the value, or an awaitable that does, and may raise RelayDebugError; None if the source is not
    present."""
    explicit: bool = False
    """True if the command line or the call selects it."""


def in_order(sources: Sequence[Source[T]]) -> list[Source[T]]:
    """Return the sources by precedence: explicit ones first."""
    return sorted(sources, key=lambda source: not source.explicit)


def choose(sources: Sequence[Source[T]]) -> Source[T] | None:
    """Return the source with the highest precedence that is present, or None."""
    return next((source for source in in_order(sources) if source.read is not None), None)


def source_of(
    name: str, given: str | None, read: Callable[[str], T], finding: str = "", *, explicit: bool = False
) -> Source[T]:
    """Return the source that an option or a variable selects; its text is the finding unless there is another."""
    if not given:
        return Source(name, "not given" if explicit else "not set", explicit=explicit)
    return Source(name, finding or given, lambda: read(given), explicit=explicit)


# Settings of the azure-debug-relay package, accepted for compatibility.
#
#     .azrelay.json in the working directory:  {"AZRELAY_CONNECTION_STRING": "...", "AZRELAY_CONNECTION_NAME": "myhc"}
#
# or environment variables with the same names; as in that package, the file takes precedence. Such files are often
# created in an editor and readable by other users, which causes only a warning. A file that belongs to another user is
# refused.

CONFIG_FILE = ".azrelay.json"
_OLDER_NAME_VARIABLE = "AZRELAY_NAME"
"""Name of the field in releases of that package before 0.3."""


def read_config_file(path: Path) -> tuple[str, str | None]:
    """Return the connection string and the hybrid connection's name, or None if the file does not name it.

    Raises:
        ConfigurationError: The file belongs to another user, cannot be read, or has no connection string.
    """
    facts, data = _read(path, "check its permissions")
    _check_owner(path, facts)
    try:
        fields = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not text(fields.get(OLD_STRING_VARIABLE), str.strip):
        raise ConfigurationError(
            f"{path} does not contain {OLD_STRING_VARIABLE}",
            hint=f'use the format {{"{OLD_STRING_VARIABLE}": "Endpoint=..."}}',
        )
    name = text(fields.get(OLD_NAME_VARIABLE), str.strip) or text(fields.get(_OLDER_NAME_VARIABLE), str.strip)
    return text(fields.get(OLD_STRING_VARIABLE), str.strip), name or None


def _check_owner(path: Path, facts: os.stat_result) -> None:
    if not hasattr(os, "getuid"):
        return
    # In a world-writable directory, another user's file could redirect the program to their relay.
    if facts.st_uid not in {os.getuid(), 0}:
        raise ConfigurationError(
            f"{path} belongs to another user", hint="run in a directory that you own, or use --connection-string-file"
        )
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("other users can read %s, which contains a key; run: chmod 600 %s", path, path)


# Local sources of a connection string, in order of precedence.
#
#     1. --connection-string            logs a warning, because other users of the machine can read command lines
#     2. --connection-string-file       must not be readable by other users (0600)
#     3. RELAY_CONNECTION_STRING        environment
#     4. RELAY_CONNECTION_STRING_FILE   environment; the file must not be readable by other users
#     5. .azrelay.json                  of the azure-debug-relay package, in the working directory
#     6. AZRELAY_CONNECTION_STRING      of the azure-debug-relay package, environment
#
# The first source that is present is used. If it is invalid, that is an error; the next source is not tried.
# `relay_core.auth.find_access` adds Key Vault and Entra ID. This module does not use the network.


class ConnectionText(NamedTuple):
    """An unparsed connection string from a source."""

    text: str
    hc: str | None = None
    """The hybrid connection, if the source names it separately."""

    def parse(self, source: str, hc: str | None) -> ConnectionString:
        """Parse the connection string, for hybrid connection `hc` if given.

        Raises:
            ConfigurationError: The connection string is invalid. The message starts with the name of the source.
        """
        try:
            parsed = ConnectionString.parse(self.text)
            wanted = hc or (None if parsed.entity_path else self.hc)
            return parsed.with_entity(wanted) if wanted else parsed
        except ConfigurationError as error:
            raise ConfigurationError(f"{source}: {error.sentence}", hint=error.hint) from None


def local_sources(settings: AccessSettings, environ: Mapping[str, str]) -> list[Source[ConnectionText]]:
    """Return all sources by precedence, including those that are not present."""
    in_variable, in_file = environ.get(CONNECTION_STRING_VARIABLE), environ.get(CONNECTION_STRING_FILE_VARIABLE)
    old, old_name = environ.get(OLD_STRING_VARIABLE), environ.get(OLD_NAME_VARIABLE)
    return [
        source_of("--connection-string", settings.connection_string, ConnectionText, "given", explicit=True),
        source_of("--connection-string-file", settings.connection_string_file, _in_file, explicit=True),
        source_of(CONNECTION_STRING_VARIABLE, in_variable, ConnectionText, "set"),
        source_of(CONNECTION_STRING_FILE_VARIABLE, in_file, _in_file),
        _config_file(Path(CONFIG_FILE)),
        source_of(OLD_STRING_VARIABLE, old, lambda text: ConnectionText(text, old_name), "set"),
    ]


def find_connection_string(
    *, text: str | None = None, file: str | None = None, environ: Mapping[str, str] | None = None, hc: str | None = None
) -> ConnectionString:
    """Return the connection string of the first source that is present, for hybrid connection `hc` if given.

    Args:
        text: An explicit connection string. If it is from the command line, the caller should log a warning.
        file: An explicit file.
        environ: Defaults to the environment of this process.
        hc: Name of the hybrid connection, for connection strings of a whole namespace.

    Raises:
        ConfigurationError: No source is present, or the first one is invalid.
    """
    settings = AccessSettings(connection_string=text, connection_string_file=file)
    for source in local_sources(settings, os.environ if environ is None else environ):
        if source.read is not None:
            return source.read().parse(source.name, hc)
    raise not_configured()


def not_configured() -> ConfigurationError:
    """Return the error for the case in which no source is present."""
    return ConfigurationError(
        "no connection string is configured",
        hint=f"set {CONNECTION_STRING_VARIABLE}, or use --connection-string-file or {CONNECTION_STRING_FILE_VARIABLE} "
        "with a file that has mode 0600; to use Entra ID instead of a key, use --namespace",
    )


def _in_file(path: str) -> ConnectionText:
    return ConnectionText(read_secret_file(path))


def _config_file(path: Path) -> Source[ConnectionText]:
    if not path.is_file():
        return Source(str(path), "not in the working directory")
    return Source(str(path), "found", lambda: ConnectionText(*read_config_file(path)))
