"""The moment when Python is complete and its program has not begun.

`sitecustomize` is too early for whatever takes time: `site` is still being imported, and a thread that imports it, as
debugpy's does, would wait until the main thread has returned from there. A process that waits for its debugger inside
`sitecustomize` waits for ever.

Python has no callback for the right moment, but it asks its import system before it runs anything: the hooks of
`sys.path_hooks` whether a script is a directory or an archive with a program in it (PyImport_GetImporter, in
Modules/main.c since Python 2.6), and the finders of `sys.meta_path` for `runpy`, which runs the modules of `-m`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from relay_agent.inject._relay_debug_programs import what_runs

__all__ = ["call_before_program"]


def call_before_program(act: Callable[[], None]) -> None:
    """Have a function called in the main thread just before the program of this process begins, once.

    Args:
        act: What it raises, Python reports in words of its own; it had better not.
    """
    gate = _Gate(act)
    sys.path_hooks.insert(0, gate)
    sys.meta_path.insert(0, gate)


class _Gate:
    """Stands in both lists until the program is asked for, and has nothing to offer itself."""

    def __init__(self, act: Callable[[], None]) -> None:
        kind, name = what_runs(sys.orig_argv)
        self._script = os.path.abspath(name) if kind == "script" else ""  # noqa: PTH100 - pathlib costs 10 ms here
        self._modules = {"runpy", name.partition(".")[0]} if kind == "module" else set()
        self._act = act

    def __call__(self, path: str) -> NoReturn:
        """Be asked, as a path hook, whether there are modules to import from a path."""
        if self._script and os.path.abspath(path) == self._script:  # noqa: PTH100 - as above
            self._open()
        raise ImportError

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - a finder's
        """Be asked, as a finder, for a module."""
        if name in self._modules:
            self._open()

    def _open(self) -> None:
        if self in sys.path_hooks:
            sys.path_hooks.remove(self)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._act()
