"""Local sources of a connection string, in order of precedence.

    1. --connection-string            logs a warning, because other users of the machine can read command lines
    2. --connection-string-file       must not be readable by other users (0600)
    3. RELAY_CONNECTION_STRING        environment
    4. RELAY_CONNECTION_STRING_FILE   environment; the file must not be readable by other users
    5. .azrelay.json                  of the azure-debug-relay package, in the working directory
    6. AZRELAY_CONNECTION_STRING      of the azure-debug-relay package, environment

The first source that is present is used. If it is invalid, that is an error; the next source is not tried.
`relay_core.auth.find_access` adds Key Vault and Entra ID. This module does not use the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from relay_core.access_settings import (
    CONNECTION_STRING_FILE_VARIABLE,
    CONNECTION_STRING_VARIABLE,
    OLD_NAME_VARIABLE,
    OLD_STRING_VARIABLE,
    AccessSettings,
)
from relay_core.auth import old_package
from relay_core.auth.secret_file import read_secret_file
from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import ConnectionString

__all__ = ["ConnectionText", "TextSource", "find_connection_string", "local_sources", "not_configured"]


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


@dataclass(frozen=True)
class TextSource:
    """A possible source of a connection string."""

    name: str
    """Name known to the user: an option, a variable or a file."""
    finding: str
    """Short description of what the source contains; determined without reading the secret."""
    read: Callable[[], ConnectionText] | None = None
    """Reads the connection string and may raise ConfigurationError; None if the source is not present."""
    explicit: bool = False
    """True if the command line or the call selects it."""


def local_sources(settings: AccessSettings, environ: Mapping[str, str]) -> list[TextSource]:
    """Return all sources by precedence, including those that are not present."""
    text, file = settings.connection_string, settings.connection_string_file
    return [
        TextSource(
            "--connection-string",
            "given" if text else "not given",
            (lambda: ConnectionText(text)) if text else None,
            explicit=True,
        ),
        TextSource(
            "--connection-string-file",
            file or "not given",
            (lambda: ConnectionText(read_secret_file(file))) if file else None,
            explicit=True,
        ),
        _variable(CONNECTION_STRING_VARIABLE, environ),
        _file_variable(CONNECTION_STRING_FILE_VARIABLE, environ),
        _config_file(Path(old_package.CONFIG_FILE)),
        _variable(OLD_STRING_VARIABLE, environ, hc=environ.get(OLD_NAME_VARIABLE)),
    ]


def find_connection_string(
    *,
    text: str | None = None,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    hc: str | None = None,
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


def _variable(name: str, environ: Mapping[str, str], *, hc: str | None = None) -> TextSource:
    text = environ.get(name)
    if not text:
        return TextSource(name, "not set")
    return TextSource(name, "set", lambda: ConnectionText(text, hc))


def _file_variable(name: str, environ: Mapping[str, str]) -> TextSource:
    path = environ.get(name)
    if not path:
        return TextSource(name, "not set")
    return TextSource(name, path, lambda: ConnectionText(read_secret_file(path)))


def _config_file(path: Path) -> TextSource:
    if not path.is_file():
        return TextSource(str(path), "not in the working directory")
    return TextSource(str(path), "found", lambda: ConnectionText(*old_package.read_config_file(path)))
