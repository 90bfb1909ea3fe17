"""How this process was started (its directory, script and time), and the PYTHONPATH of the processes that it starts."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from relay_agent.inject._relay_debug_programs import what_runs

if TYPE_CHECKING:
    from pathlib import Path


# How this process was started: its directory (even if the program has changed it since), its script and the time.
#
# In an editor's `pathMappings`, `"."` means this directory. A program may have changed it: hydra, for example, changes
# the directory before a job's own code runs.


def current_directory() -> str:
    """Return the working directory of this process, or "" if it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib costs 10 ms here, as below
    except OSError:
        return ""


_at_import = current_directory()
"""Programs import this package before they change their directory."""
_imported_at = time.time()


def start_directory() -> str:
    """Return the directory, or "" if it is unknown.

    Python makes `__file__` of the main module absolute when the program starts. If it ends with the relative path on
    the command line, the rest is the directory. Programs given in another form do not reveal the directory.
    """
    name = next((text for text in sys.orig_argv[1:] if text == sys.argv[0]), "") if sys.argv else ""
    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if name.endswith(".py") and not os.path.isabs(name) and file.endswith(os.sep + name):  # noqa: PTH117
        return os.path.normpath(file[: -len(name)])
    return _at_import


def script_name() -> str:
    """Return the name of the script or module that this process runs, without its directory."""
    kind, name = what_runs(sys.orig_argv)
    if kind == "module":
        return name
    return os.path.basename(name if kind == "script" else (*sys.argv, "")[0])  # noqa: PTH119


def start_time() -> float:
    """Return when this package was imported, as `time.time()`; forked processes return the time of their parent."""
    return _imported_at


# PYTHONPATH for the processes that this one starts.


def in_front(directory: Path, python_path: str | None) -> str:
    """Return `python_path` with `directory` as its first entry and nowhere else."""
    others = [entry for entry in python_path.split(os.pathsep) if entry != str(directory)] if python_path else []
    return os.pathsep.join([str(directory), *others])
