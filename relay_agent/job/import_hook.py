"""Calls a function after a module has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call a function once, with the module of this name, as soon as the module has been executed.

    If the module has already been imported, the function is called immediately. A second call for the same name has no
    effect while the first one is waiting.
    """
    if (module := sys.modules.get(name)) is not None:
        action(module)
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, action))


class _Finder:
    """Meta path finder that detects the import of one module, and is then removed."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self.name = name
        self._action = action

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's spec from the other finders, with its loader wrapped; None for every other module."""
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                self._wrap_loader(spec.loader)
                return spec
        return None

    def _wrap_loader(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._action(module)

        loader.exec_module = exec_module
