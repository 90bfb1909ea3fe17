"""The command line of the task in tasks.json: the options that `relay-client init` received, without secrets.

Options become options of the task, and environment variables become variables of the task. The task therefore finds the
same credentials as the shell in which `init` ran, even if VS Code was started elsewhere. Paths are written relative to
the opened folder or the user's home directory, because tasks.json is often shared with other people.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from relay_core.access_settings import (
    ACCESS_OPTIONS,
    CONNECTION_STRING_VARIABLE,
    OLD_STRING_VARIABLE,
    TUNNEL_KEY_VARIABLE,
    AccessSettings,
)
from relay_core.errors import UsageError

__all__ = ["Places", "access_arguments", "missing_secrets", "task_environ"]

_STRING_FIELDS = {"connection_string_file", "connection_string_secret", "namespace"}
_KEY_FIELDS = {"tunnel_key_file", "tunnel_key_secret"}
_SECRETS = {
    CONNECTION_STRING_VARIABLE: (_STRING_FIELDS, "--connection-string-file"),
    OLD_STRING_VARIABLE: (_STRING_FIELDS, "--connection-string-file"),
    TUNNEL_KEY_VARIABLE: (_KEY_FIELDS, "--tunnel-key-file"),
}
"""Variables that hold a secret: for each, the settings that replace it, and the recommended option."""


class Places(NamedTuple):
    """Directories for which VS Code has variables, and the base of relative paths; all absolute."""

    folder: PurePath
    """The folder that VS Code opens."""
    home: PurePath
    cwd: PurePath

    def portable(self, path: str) -> str:
        """Return a path that VS Code can resolve on this machine and, if possible, on other machines."""
        absolute = self.cwd / path
        for place, variable in ((self.folder, "${workspaceFolder}"), (self.home, "${userHome}")):
            if place in absolute.parents:
                return f"{variable}/{absolute.relative_to(place).as_posix()}"
        return str(absolute)


def access_arguments(settings: AccessSettings, places: Places) -> list[str]:
    """Return the credential options of a command line.

    Raises:
        UsageError: a connection string is among them.
    """
    given = settings.given()
    if "connection_string" in given:
        raise UsageError(
            "--connection-string is a secret and cannot be written to tasks.json", hint="use --connection-string-file"
        )
    arguments = []
    for option in ACCESS_OPTIONS:
        if text := given.get(option.field):
            arguments += [option.option, places.portable(text) if option.is_file else text]
    return arguments


def task_environ(settings: AccessSettings, environ: Mapping[str, str], places: Places) -> dict[str, str]:
    """Return the credential variables that are in effect in an environment, without those that hold a secret."""
    given = settings.given()
    found = {}
    for option in ACCESS_OPTIONS:
        text = environ.get(option.variable or "")
        if option.variable and option.variable not in _SECRETS and option.field not in given and text:
            found[option.variable] = places.portable(text) if option.is_file else text
    return found


def missing_secrets(settings: AccessSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secret variables that the task would need, each with the option to use instead."""
    given = settings.given().keys()
    return {
        variable: option
        for variable, (fields, option) in _SECRETS.items()
        if environ.get(variable) and not fields & given
    }
