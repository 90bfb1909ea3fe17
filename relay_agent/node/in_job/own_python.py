"""The Python that runs the agent and debugpy's adapter, and the environment that it needs."""

from __future__ import annotations

import importlib.util
import os
import re
import site
import sys
from pathlib import Path

from relay_agent.job.paths import in_front, start_directory
from relay_core.errors import ConfigurationError

PYTHON_VARIABLE = "RELAY_PYTHON"
_PYTHON = re.compile(r"(platform-)?(python|pypy|graalpy)[0-9.]*t?d?(-\w+)?", re.IGNORECASE)
"""Names of Python interpreters, such as python3.13t, python3-dbg and platform-python3.9."""
_KEPT_OPTIONS = frozenset(
    {
        *("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONNOUSERSITE", "PYTHONUSERBASE"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONUTF8", "PYTHONCOERCECLOCALE"),
    }
)
"""Python's variables that say where its files are, and how files are written and read."""


def find_python() -> str:
    """Return the path of the interpreter for programs of relay-debug.

    `sys.executable` is not started unless its name is that of an interpreter: in a program that embeds Python it may be
    that program, which would run once more.

    Raises:
        ConfigurationError: there is none.
    """
    if chosen := os.environ.get(PYTHON_VARIABLE):
        return chosen
    names = (os.path.basename(path) for path in (sys.executable, os.path.realpath(sys.executable)))  # noqa: PTH119 - 10 ms
    if sys.executable and not getattr(sys, "frozen", False) and any(map(_PYTHON.fullmatch, names)):
        return sys.executable
    raise ConfigurationError(
        "cannot start the agent: this program embeds Python, and its executable is not a Python interpreter",
        hint=f"set {PYTHON_VARIABLE} to the path of a Python in which relay-debug is installed",
    )


def without_python_options() -> dict[str, str]:
    """Return the job's environment without options for its own Python, such as PYTHONWARNINGS, and PYTHONPATH.

    They would change how programs of relay-debug run, or make them write to the job's stderr.
    """
    kept = _KEPT_OPTIONS - ({"PYTHONHOME"} if os.environ.get(PYTHON_VARIABLE) else set())
    return {name: text for name, text in os.environ.items() if name in kept or not name.startswith("PYTHON")}


def agent_environment() -> dict[str, str]:
    """Return the environment in which `-m relay_agent` runs this package, and not a file of the job.

    PYTHONPATH begins with the directories that a new interpreter does not have on its own. If this package depends on
    them, these are all that the job has added to `sys.path` (PEX, Bazel, Spark), but for that of its own script.
    """
    own = _directory_of(__package__.partition(".")[0])
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    added = [] if own in installed else [own]
    if _directory_of("websockets") not in installed:
        main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        excluded = {*installed, "", start_directory(), os.path.dirname(os.path.abspath(main))}  # noqa: PTH100,PTH120
        standard = os.path.dirname(os.__file__)  # noqa: PTH120 - as above
        added += [entry for entry in sys.path if entry not in excluded and not entry.startswith(standard)]
    path = os.environ.get("PYTHONPATH")
    for entry in reversed(added):
        path = in_front(Path(entry), path)
    return without_python_options() | {"PYTHONSAFEPATH": "1"} | ({"PYTHONPATH": path} if path else {})


def _directory_of(package: str) -> str:
    """Return the directory (or archive) that contains a package, or "" if there is none."""
    spec = importlib.util.find_spec(package)
    return os.path.dirname(next(iter(spec.submodule_search_locations or ("",)))) if spec else ""  # noqa: PTH120 - as above
