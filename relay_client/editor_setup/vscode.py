"""`.vscode/launch.json` and `.vscode/tasks.json`: F5 starts relay-client, waits until it is ready, and attaches.

VS Code matches relay-client's lines `starting`, `ready` and `error: ...`. The following behaviour of VS Code explains
the task:

- If a task's program is not found, VS Code waits without limit for a `process` task but not for a `shell` task.
- A failed task does not prevent VS Code from attaching. An error in the Problems view prevents this each time the user
  presses F5, until the task starts again. Therefore, errors about a single connection, which begin with the port, must
  not appear there.
- When a task exits after its end pattern has matched, VS Code removes its errors from the Problems view. Therefore
  `failed` is not an end pattern. With `reveal: silent` and without `close`, the terminal is shown as well.
- A problem pattern requires a file. No file is involved, so the program's name is matched as the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

from relay_client.editor_setup.entries import PREFIX, Entry
from relay_client.editor_setup.jsonc import Document
from relay_core.access_settings import (
    ACCESS_OPTIONS,
    CONNECTION_STRING_VARIABLE,
    OLD_STRING_VARIABLE,
    TUNNEL_KEY_VARIABLE,
    AccessSettings,
)
from relay_core.errors import UsageError
from relay_core.json_values import items, mapping

# The command line of the task in tasks.json: the options that `relay-client init` received, without secrets.
#
# Options become options of the task, and environment variables become variables of the task. The task therefore finds
# the same credentials as the shell in which `init` ran, even if VS Code was started elsewhere. Paths are written
# relative to the opened folder or the user's home directory, because tasks.json is often shared with other people.

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


COMPOUND = f"{PREFIX}each rank"
"""Name of the compound that starts one session for each rank."""
TASK = "relay-client"
"""Label of the task, and owner of its entries in the Problems view."""

_KEPT_IN_CONFIGURATION = ("justMyCode", "pathMappings", "presentation", "subProcess")
_KEPT_IN_TASK = ("presentation", "runOptions")
"""Members that users may change; existing values are kept."""


def launch_json(text: str, entries: Sequence[Entry], name: str) -> str:
    """Return a launch.json with one configuration per entry, and a compound if there are several ranks.

    VS Code selects the first entry by `presentation`: the session of all ranks or, without it, the first rank.

    Args:
        text: The file; "" if there is none.
        entries: The entries; at least one.
        name: Name of the file, for errors.

    Raises:
        ConfigurationError: the file is not valid.
    """
    document = Document(_without_deprecated_type(text, name), name)
    document.set_default("version", "0.2.0")
    for order, entry in enumerate(entries, 1):
        configuration = _configuration(entry, 0 if entry.is_job else order)
        document.upsert("configurations", "name", configuration, keep=_KEPT_IN_CONFIGURATION)
    existing = _named(document.data.get("compounds"), COMPOUND)
    ranks = [entry for entry in entries if not entry.is_job]
    if len(ranks) > 1 or existing:
        compound = _compound(ranks, existing, len(entries) + 1)
        document.upsert("compounds", "name", compound, keep=("stopAll", "presentation"))
    return document.text()


def attach_configuration(name: str, port: int) -> dict[str, Any]:
    """Return a configuration that attaches to a local port, without the task that opens the port."""
    return {
        "name": name,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
        "justMyCode": False,
    }


def _configuration(entry: Entry, order: int) -> dict[str, Any]:
    return {
        **attach_configuration(entry.name, entry.port),
        "subProcess": not entry.is_job,  # all ranks together may start hundreds of data loaders
        "preLaunchTask": TASK,
        "presentation": {"group": "relay", "order": order},
    }


def _compound(entries: Sequence[Entry], existing: Mapping[str, Any], order: int) -> dict[str, Any]:
    """Return the compound of all entries; it keeps members that the user added, but drops ranks without an entry."""
    names = [entry.name for entry in entries]
    kept = [each for each in items(existing.get("configurations")) if not _is_ours(each) or each in names]
    return {
        "name": COMPOUND,
        "configurations": kept + [name for name in names if name not in kept],
        "preLaunchTask": TASK,
        "stopAll": True,
        "presentation": {"group": "relay", "order": order},
    }


def _is_ours(member: Any) -> bool:
    return isinstance(member, str) and member.startswith((f"{PREFIX}rank ", f"{PREFIX}port "))


def _without_deprecated_type(text: str, name: str) -> str:
    """Return a launch.json in which attach entries of the deprecated type `python` have been changed to `debugpy`."""
    document = Document(text, name)
    document.change("configurations", _is_deprecated, {"type": "debugpy"})
    return document.text()


def _is_deprecated(entry: Any) -> bool:
    return isinstance(entry, dict) and (entry.get("type"), entry.get("request")) == ("python", "attach")


def _named(elements: Any, name: str, key: str = "name") -> Mapping[str, Any]:
    """Return the first object with this name, or an empty object."""
    return next((each for each in items(elements) if isinstance(each, dict) and each.get(key) == name), {})


def task_hc(text: str, name: str) -> str | None:
    """Return the value of `--hc` in the task of a tasks.json; None if there is none.

    Raises:
        ConfigurationError: the file is not valid.
    """
    pairs = pairwise(items(_named(Document(text, name).data.get("tasks"), TASK, "label").get("args")))
    return next((str(value) for option, value in pairs if option == "--hc"), None)


def tasks_json(text: str, command: str, arguments: Sequence[str], environ: Mapping[str, str], name: str) -> str:
    """Return a tasks.json with the task that runs relay-client.

    Args:
        text: The file; "" if there is none.
        command: The program.
        arguments: Its arguments.
        environ: Variables to set for it.
        name: Name of the file, for errors.

    Raises:
        ConfigurationError: the file is not valid.
    """
    document = Document(text, name)
    document.set_default("version", "2.0.0")
    document.upsert("tasks", "label", _task(command, arguments, environ), keep=_KEPT_IN_TASK)
    return document.text()


def without_ours(text: str, name: str) -> str:
    """Return a launch.json or tasks.json without what `launch_json` and `tasks_json` add; "" if nothing else is in it.

    Raises:
        ConfigurationError: the file is not valid.
    """
    document = Document(text, name)
    for array in ("configurations", "compounds", "tasks"):
        document.remove(array, _is_added)
    remaining = Document(document.text(), name)
    if document.data.get("compounds"):  # otherwise, the user had an empty list
        remaining.remove_empty("compounds")
    after = remaining.text()
    is_empty = after != text and not any(value for key, value in remaining.data.items() if key != "version")
    return "" if is_empty and "//" not in after and "/*" not in after else after


def _is_added(entry: Any) -> bool:
    """Return True for the task, and for the configurations and the compound that start it."""
    found = mapping(entry)
    is_named = str(found.get("name")).startswith(PREFIX)
    return found.get("label") == TASK or (is_named and found.get("preLaunchTask") == TASK)


_LINE = r"^(?:[0-9-]+ [0-9:]+ )?relay-client: "
"""The start of a log line; it includes the time if the task's output is not a terminal."""


def _task(command: str, arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "label": TASK,
        "type": "shell",
        "command": command,
        "args": list(arguments),
        **({"options": {"env": dict(environ)}} if environ else {}),
        "isBackground": True,
        "runOptions": {"instanceLimit": 1},
        "presentation": {"reveal": "silent", "panel": "dedicated", "showReuseMessage": False},
        "problemMatcher": {
            "owner": TASK,
            "source": TASK,
            "fileLocation": "absolute",
            "pattern": {
                # VS Code shows the file above the message, so a message in place of the file would be shown twice.
                "regexp": r"^(relay-client): (error): ((?!port \d+(?::| connection )).*)$",
                "file": 1,
                "severity": 2,
                "message": 3,
                "kind": "file",
            },
            "background": {
                "activeOnStart": True,
                "beginsPattern": rf"{_LINE}starting",
                "endsPattern": rf"{_LINE}ready",
            },
        },
    }
