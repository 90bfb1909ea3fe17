"""The stacks of a process: the answer to the question `ReadStacks`.

The classes are named tuples because jobs use them too, and importing `dataclasses` would cost a job 10 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

HELPER_THREAD = "helper thread"
"""The usual method by which a process is asked for its stacks."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.", "/lib64/python3.")
"""Parts of the paths of installed code."""
_TYPED = ("<stdin>", "<console>", "<python-input-", "<ipython-input-")
"""Beginnings of the names of code that a user has typed."""
_ROOT = __file__.rpartition("relay_core")[0]
OWN = tuple(f"{_ROOT}{package}{_ROOT[-1:]}" for package in ("relay_agent", "relay_core"))
"""The directories of relay-debug's code in jobs; in a checkout, their paths look like those of the user's code."""


def is_library(file: str) -> bool:
    """Return whether a name is that of a file of installed code or relay-debug's own, or of code that was generated."""
    return (file.startswith(("<", *OWN)) and not file.startswith(_TYPED)) or any(part in file for part in _LIBRARIES)


def public_name(file: str) -> str:
    """Return the file name that other machines get: only here, the path shows that a file is relay-debug's own."""
    return f"<relay-debug>/{file[len(_ROOT) :]}" if file.startswith(OWN) else file


_NO_LOCALS: Mapping[str, str] = MappingProxyType({})


class Frame(NamedTuple):
    """One stack frame."""

    file: str
    line: int
    """0 if unknown."""
    function: str
    locals: Mapping[str, str] = _NO_LOCALS
    """Abbreviated values of the variables, by name, if they were requested."""


class ThreadStack(NamedTuple):
    """One thread and its frames."""

    name: str
    ident: int
    """The thread's `threading.get_ident()`."""
    main: bool
    frames: tuple[Frame, ...]
    """Innermost frame last."""
    stopped: bool = False
    """Whether the thread is stopped at a breakpoint or after a step; not if it was stopped along with another one."""


class ProcessStacks(NamedTuple):
    """One process and its threads."""

    how: str = "none"
    """The method that succeeded: "helper thread", "faulthandler" or "py-spy"; "none" if all failed."""
    threads: tuple[ThreadStack, ...] = ()
    """Main thread first."""
    error: str = ""
    """Why every method failed, in one sentence."""
