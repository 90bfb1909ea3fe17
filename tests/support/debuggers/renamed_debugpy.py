"""A debugpy in which private names are other ones, as a later version might have them: consistently, in all its files.

The files are changed while they are imported. Compiled modules cannot be, so pydevd does without them.
"""

import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path

SUFFIX = "_of_a_later_version"
SHARED_NAMES = {
    "settrace": r"(?<=def )settrace(?=\()|(?<=pydevd\.)settrace\b",
    "called": r"(?<=listen\.)called\b",
    "empty": r"(?<=def )empty\b|(?<=writer\.)empty\b",
    "send": r"(?<=def )send(?=\(self, (?:sock|\*args))|(?<=cmd\.)send\b",
}
"""Patterns for names that others have too, as `sys.settrace` does."""


def rename(*names: str) -> None:
    """Rename functions, classes or attributes of debugpy in this process; nothing of debugpy may be imported before."""
    os.environ.update(PYDEVD_USE_CYTHON="NO", PYDEVD_USE_FRAME_EVAL="NO")
    sys.meta_path.insert(0, _Finder(re.compile("|".join(SHARED_NAMES.get(name, rf"\b{name}\b") for name in names))))


class _Finder:
    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        origin = spec.loader.path
        if "/debugpy/" in origin and self._pattern.search(source := Path(origin).read_text(encoding="utf-8")):
            spec.loader = _Loader(fullname, origin, self._pattern.sub(rf"\g<0>{SUFFIX}", source))
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)
