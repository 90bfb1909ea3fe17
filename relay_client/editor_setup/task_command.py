"""What the task in tasks.json runs: the options that `relay-client init` was given, and no secret.

Options are written as options and variables as variables of the task, so that the same credentials are found as in the
shell in which `init` ran: VS Code is often started elsewhere. Paths are written relative to the opened folder or to the
user's home, because people share tasks.json.
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
"""Variables that hold a secret, with the options that take their place, and the one to recommend."""


class Places(NamedTuple):
    """Directories that VS Code has variables for, and the one that relative paths start at; all absolute."""

    folder: PurePath
    """The folder that VS Code opens."""
    home: PurePath
    cwd: PurePath

    def portable(self, path: str) -> str:
        """Return a path as VS Code finds it on this machine, and where possible on others."""
        absolute = self.cwd / path
        for place, variable in ((self.folder, "${workspaceFolder}"), (self.home, "${userHome}")):
            if place in absolute.parents:
                return f"{variable}/{absolute.relative_to(place).as_posix()}"
        return str(absolute)


def access_arguments(settings: AccessSettings, places: Places) -> list[str]:
    """Return the credential options of a command line.

    Raises:
        UsageError: there is a connection string among them.
    """
    given = settings.given()
    if "connection_string" in given:
        raise UsageError(
            "--connection-string is a secret and cannot be written into tasks.json", hint="use --connection-string-file"
        )
    arguments = []
    for option in ACCESS_OPTIONS:
        if text := given.get(option.field):
            arguments += [option.option, places.portable(text) if option.is_file else text]
    return arguments


def task_environ(settings: AccessSettings, environ: Mapping[str, str], places: Places) -> dict[str, str]:
    """Return the variables about credentials that count in an environment, without those that hold a secret."""
    given = settings.given()
    found = {}
    for option in ACCESS_OPTIONS:
        text = environ.get(option.variable or "")
        if option.variable and option.variable not in _SECRETS and option.field not in given and text:
            found[option.variable] = places.portable(text) if option.is_file else text
    return found


def missing_secrets(settings: AccessSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with a secret that the task would need, with the option to use instead."""
    given = settings.given().keys()
    return {
        variable: option
        for variable, (fields, option) in _SECRETS.items()
        if environ.get(variable) and not fields & given
    }
