"""A module of this process whose code is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from relay_agent.push.loaded_code import filename_of, functions_of
from relay_agent.push.new_file import NewFile
from relay_agent.push.old_file import OldFile
from relay_agent.push.swap import Swap

THREADS = {threading.main_thread().ident: "MainThread"}


class Result(NamedTuple):
    """What a push has reported."""

    changed: list[str]
    kept: list[str]


class Loaded:
    """A module that is loaded from a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = ModuleType(path.stem)
        self.module.__file__ = str(path)

    def execute(self, source: str) -> None:
        """Write the file, and execute it as an import does."""
        self.path.write_text(source)
        exec(compile(source, str(self.path), "exec", dont_inherit=True), vars(self.module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def swap(self, source: str, old: OldFile | None = None) -> Swap:
        """Return the swap for a new content of the file."""
        filename = filename_of(self.module)
        live = functions_of(filename)
        functions = [function for found in live.values() for function in found]
        return Swap([self.module], NewFile(source, filename), old or OldFile.find(filename, None, functions))

    def push(self, source: str, old: OldFile | None = None) -> Result:
        """Replace the code."""
        swap = self.swap(source, old)
        swap.prepare()
        swap.commit(THREADS)
        return Result(swap.changed, swap.kept)


Load = Callable[[str], Loaded]
