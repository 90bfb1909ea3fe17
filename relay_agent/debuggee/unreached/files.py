"""Finds modules that were loaded from another place than the file with the breakpoints.

An archive, a compiled module, an installed package and a file with the same name in another directory all have this
effect: the debugger verifies the breakpoint, because its file exists, but the file is not what the job runs.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["describe"]

MAIN = "__main__"


def describe(file: str) -> str | None:
    """Return a line if the module whose source this file should be was loaded from another file.

    Args:
        file: The path, in which links are resolved.

    Returns:
        "" if a module was loaded from this file, and None if no such module has been loaded yet.
    """
    try:
        return _describe(file)
    except (OSError, ValueError):  # this user may not enter a directory, or the job has invented a path
        return ""


def _describe(file: str) -> str | None:
    found = list(_modules_for(file))
    if any(_runs(namespace, file) for _, namespace in found):
        return ""
    for name, namespace in found:
        path = namespace["__file__"]
        what = "the job's main module" if name == MAIN else f"module {name}"
        return f"breakpoints in {file} are not hit in {what}, which was loaded from {path}. hint: {_hint(path)}"
    return None


def _hint(path: str) -> str:
    if path.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return "run the source instead of the compiled module while you debug"
    if Path(path).is_file():
        return "set the breakpoints in that file, or correct pathMappings in launch.json"
    return "run the job from unpacked source files while you debug"


def _modules_for(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and namespaces of the modules that a file with this path would be, those with long names first.

    No code of the job runs, although any object may be in `sys.modules`.
    """
    names = list(_module_names(file))
    for name in (MAIN, *names):
        module = sys.modules.get(name)
        if module is None or not issubclass(type(module), ModuleType):
            continue
        namespace = ModuleType.__getattribute__(module, "__dict__")
        if type(namespace.get("__file__")) is str and (name != MAIN or _main_name(namespace) in names):
            yield name, namespace


def _module_names(file: str) -> Iterator[str]:
    """Yield the names under which a file may be imported, from the longest to the shortest."""
    directory, stem = Path(file).parent, Path(file).stem
    own_part = () if stem == "__init__" else (stem,)
    parts = (*directory.parts[1:], *own_part)
    shortest = len(own_part)
    while (directory / "__init__.py").is_file():
        directory = directory.parent
        shortest += 1
    for count in range(len(parts), max(shortest, 1) - 1, -1):
        name = ".".join(parts[-count:])
        if name.partition(".")[0] not in sys.stdlib_module_names:
            yield name


def _main_name(namespace: dict[str, Any]) -> str:
    spec = namespace.get("__spec__")
    if type(spec) is importlib.machinery.ModuleSpec:
        return str(spec.name).removesuffix(f".{MAIN}")
    return Path(namespace["__file__"]).stem


def _runs(namespace: dict[str, Any], file: str) -> bool:
    paths = {namespace["__file__"]}
    for value in list(namespace.values()):
        if type(value) is FunctionType and value.__globals__ is namespace:
            paths.add(value.__code__.co_filename)  # another one, if the code was compiled elsewhere
            break
    # A relative path may be relative to a directory that the job has left.
    return any(str(Path(path).resolve()) == file or file.endswith(f"/{path}") for path in paths)
