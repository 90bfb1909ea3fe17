"""A project folder as a user has it, and the copies of it that jobs run on their nodes."""

import json
import shutil
from pathlib import Path
from typing import Any

from relay_client.editor_setup.vscode import attach_configuration

__all__ = ["BREAKPOINT", "PROGRAM", "SCRIPT", "Workspace", "attach"]

SCRIPT = "train.py"
PROGRAM = """\
import time


def step(number):
    square = number * number
    double = number + number
    return square + double


total = 0
for number in range(1_000_000):
    total += step(number)
    time.sleep(0.02)
"""
BREAKPOINT = PROGRAM.splitlines().index("    square = number * number") + 1


class Workspace:
    """A project folder with a script and with .vscode/launch.json.

    Args:
        folder: Is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.write_script(SCRIPT, PROGRAM)
        self.write_launch([])

    def write_script(self, name: str, program: str) -> Path:
        """Write a script of the project."""
        path = self.folder / name
        path.write_text(program)
        return path

    def copy(self, to: Path) -> Path:
        """Copy the project, as a job gets it, without the editor's files, and return the folder."""
        return Path(shutil.copytree(self.folder, to, ignore=shutil.ignore_patterns(".vscode")))

    def write_launch(self, configurations: list[dict[str, Any]], **more: Any) -> None:
        """Write .vscode/launch.json, and no tasks.json."""
        self.clear()
        path = self.folder / ".vscode" / "launch.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"version": "0.2.0", "configurations": configurations, **more}, indent=2))

    def clear(self) -> None:
        """Remove .vscode."""
        shutil.rmtree(self.folder / ".vscode", ignore_errors=True)

    def configured(self) -> list[list[Any]]:
        """Return launch configurations, compounds and tasks; the files must be without comments."""
        launch, tasks = (self._read(name) for name in ("launch.json", "tasks.json"))
        return [launch.get("configurations", []), launch.get("compounds", []), tasks.get("tasks", [])]

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / ".vscode" / name
        return dict(json.loads(path.read_text())) if path.exists() else {}


def attach(name: str, port: int, **more: Any) -> dict[str, Any]:
    """Return a launch configuration as `init vscode` writes it and docs/guides/vscode.md shows it, without a task."""
    return {**attach_configuration(name, port), **more}
