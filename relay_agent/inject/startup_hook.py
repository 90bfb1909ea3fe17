"""The moment when Python is complete and its program has not begun.

`sitecustomize` is too early for whatever takes time: `site` is still being imported, and a thread that imports it, as
debugpy's does, would wait until the main thread has returned from there. A process that waits for its debugger inside
`sitecustomize` waits without end.

Python has no callback for the right moment, but before it runs anything it asks two questions, while no lock of the
import system is held (Modules/main.c). Is a script perhaps a directory or an archive? The hooks of `sys.path_hooks`
answer that. Where is the code of such a thing, or of a module? That is what functions of `runpy` find out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from relay_agent.inject._relay_debug_programs import what_runs

__all__ = ["call_before_program"]

_SEARCHES = ("_get_module_details", "_get_main_module_details")
"""What `runpy._run_module_as_main`, which Python calls, calls first: for `-m`, and for a directory or an archive."""


def call_before_program(act: Callable[[], None]) -> None:
    """Have a function called in the main thread just before the program of this process begins, once.

    Args:
        act: It had better not raise anything: Python would report that as a program that cannot be found.
    """
    kind, name = what_runs(sys.orig_argv)
    gate = _Gate(act, os.path.abspath(name))  # noqa: PTH100 - pathlib costs 10 ms here
    if kind == "script":
        sys.path_hooks.append(gate)
    if not (kind == "script" and name.endswith(".py")):
        gate.guard_runpy()


class _Gate:
    """Stands where Python looks for the program, and has nothing to offer itself."""

    def __init__(self, act: Callable[[], None], script: str) -> None:
        self._act = act
        self._script = script
        self._searches: dict[str, Callable[..., Any]] = {}
        self._opened = False

    def __call__(self, path: str) -> Any:  # None, which typeshed does not allow a hook to return
        """Be asked, as a path hook, whether there is something to import from a path."""
        if os.path.abspath(path) == self._script:  # noqa: PTH100 - as above
            is_last = self._is_last()
            self._open()
            if is_last:
                return None  # means no, too; a debugger that is attached by now would show an exception as uncaught
        raise ImportError

    def guard_runpy(self) -> None:
        """Be asked when `runpy` looks for the program."""
        import runpy  # noqa: PLC0415 - as Python will do

        for name in _SEARCHES:
            self._searches[name] = getattr(runpy, name)
            setattr(runpy, name, self._search(name))

    def _search(self, name: str) -> Callable[..., Any]:
        def search(*args: Any) -> Any:
            self._open()
            return self._searches[name](*args)

        return search

    def _is_last(self) -> bool:
        """Whether no other hook is asked after this one."""
        return sys.path_hooks[-1:] == [self]

    def _open(self) -> None:
        if self._is_last():  # Python counts the hooks before it calls them: no other place can be emptied
            sys.path_hooks.pop()
        for name, search in self._searches.items():
            setattr(sys.modules["runpy"], name, search)
        if not self._opened:
            self._opened = True
            self._act()
