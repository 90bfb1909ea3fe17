"""Sources of a connection string on this machine, in the order in which they are looked at.

1. --connection-string            works, but warns: other users of the machine can read command lines
2. --connection-string-file       must not be readable by others (0600)
3. RELAY_CONNECTION_STRING        environment
4. RELAY_CONNECTION_STRING_FILE   environment; the file must not be readable by others
5. .azrelay.json                  of the azure-debug-relay package, in the working directory
6. AZRELAY_CONNECTION_STRING      of the azure-debug-relay package, environment

The first that is there is used; if it is unusable that is an error, and never a reason to look further. What Key Vault
and Entra ID add is in `relay_core.auth.access`. Nothing here talks to a network.
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

__all__ = ["ConnectionText", "TextSource", "find_connection_string", "local_sources", "nothing_configured"]


class ConnectionText(NamedTuple):
    """A connection string as a source holds it."""

    text: str
    hc: str | None = None
    """The hybrid connection that the source names beside it."""

    def parse(self, source: str, hc: str | None) -> ConnectionString:
        """Read it, for hybrid connection `hc` if given.

        Raises:
            ConfigurationError: it is unusable; the sentence begins with the source.
        """
        try:
            parsed = ConnectionString.parse(self.text)
            wanted = hc or (None if parsed.entity_path else self.hc)
            return parsed.with_entity(wanted) if wanted else parsed
        except ConfigurationError as error:
            raise ConfigurationError(f"{source}: {error.sentence}", hint=error.hint) from None


@dataclass(frozen=True)
class TextSource:
    """One place that a connection string may be in."""

    name: str
    """As the user knows it: an option, a variable, a file."""
    finding: str
    """What a first look shows, without reading the secret."""
    read: Callable[[], ConnectionText] | None = None
    """Raises ConfigurationError; None if there is nothing."""
    explicit: bool = False
    """Whether the command line or the call names it."""


def local_sources(settings: AccessSettings, environ: Mapping[str, str]) -> list[TextSource]:
    """Return all of them in order, present or not."""
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
    """Return the connection string of the first source that has one, for hybrid connection `hc` if given.

    Args:
        text: An explicit connection string; the caller warns if it came from a command line.
        file: An explicit file.
        environ: Defaults to the environment of this process.
        hc: Name of the hybrid connection, for strings of a whole namespace.

    Raises:
        ConfigurationError: no source has one, or the first that has one is unusable.
    """
    settings = AccessSettings(connection_string=text, connection_string_file=file)
    for source in local_sources(settings, os.environ if environ is None else environ):
        if source.read is not None:
            return source.read().parse(source.name, hc)
    raise nothing_configured()


def nothing_configured() -> ConfigurationError:
    """Return the error of a program that was told nothing at all."""
    return ConfigurationError(
        "no connection string is configured",
        hint=f"set {CONNECTION_STRING_VARIABLE}, or {CONNECTION_STRING_FILE_VARIABLE} to a file with mode 0600, "
        "or use --connection-string-file; without keys: --namespace, for Entra ID",
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
    return TextSource(str(path), "is there", lambda: ConnectionText(*old_package.read_config_file(path)))
