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
from typing import Any

from relay_client.editor_setup.entries import PREFIX, Entry
from relay_client.editor_setup.jsonc.editing import Document

__all__ = ["COMPOUND", "TASK", "launch_json", "tasks_json"]

COMPOUND = f"{PREFIX}all ranks"
TASK = "relay-client"
"""Label of the task, and owner of its entries in the Problems view."""

_KEPT_IN_CONFIGURATION = ("justMyCode", "pathMappings", "presentation", "subProcess")
_KEPT_IN_TASK = ("presentation", "runOptions")
"""Members that users may change; existing values are kept."""


def launch_json(text: str, entries: Sequence[Entry], name: str) -> str:
    """Return a launch.json with one configuration per entry, and a compound if there are several ranks.

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
        document.upsert("configurations", "name", _configuration(entry, order), keep=_KEPT_IN_CONFIGURATION)
    existing = _named(document.data.get("compounds"), COMPOUND)
    ranks = [entry for entry in entries if not entry.is_job]
    if len(ranks) > 1 or existing:
        document.upsert("compounds", "name", _compound(ranks, existing), keep=("stopAll", "presentation"))
    return document.text()


def _configuration(entry: Entry, order: int) -> dict[str, Any]:
    return {
        "name": entry.name,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": entry.port},
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
        "justMyCode": False,
        "subProcess": not entry.is_job,  # all ranks together may start hundreds of data loaders
        "preLaunchTask": TASK,
        "presentation": {"group": "relay", "order": order},
    }


def _compound(entries: Sequence[Entry], existing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compound of all entries; it keeps members that the user added, but drops ranks without an entry."""
    names = [entry.name for entry in entries]
    members = existing.get("configurations")
    kept = [each for each in members if not _is_ours(each) or each in names] if isinstance(members, list) else []
    return {
        "name": COMPOUND,
        "configurations": kept + [name for name in names if name not in kept],
        "preLaunchTask": TASK,
        "stopAll": True,
        "presentation": {"group": "relay", "order": 0},
    }


def _is_ours(member: Any) -> bool:
    return isinstance(member, str) and member.startswith((f"{PREFIX}rank ", f"{PREFIX}port "))


def _without_deprecated_type(text: str, name: str) -> str:
    """Return a launch.json in which attach entries of the deprecated type `python` have been changed to `debugpy`."""
    document = Document(text, name)
    configurations = document.data.get("configurations")
    for position, each in enumerate(configurations if isinstance(configurations, list) else []):
        if isinstance(each, dict) and (each.get("type"), each.get("request")) == ("python", "attach"):
            document.replace(["configurations", position, "type"], "debugpy")
    return document.text()


def _named(elements: Any, name: str) -> Mapping[str, Any]:
    """Return the first object with this name, or an empty object."""
    candidates = elements if isinstance(elements, list) else []
    return next((each for each in candidates if isinstance(each, dict) and each.get("name") == name), {})


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
