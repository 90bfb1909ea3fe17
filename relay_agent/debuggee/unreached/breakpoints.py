"""Finds breakpoints that are not hit: in other files, in compiled functions, behind, or because of another tracer."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import itertools
import operator
import re
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

from relay_agent.job.gevent_originals import threading
from relay_agent.job.own_settrace import tracer_name
from relay_agent.job.torch_compiler import has_compiled_code
from relay_agent.stacks.in_process import all_frames, stack_of

# Finds modules that were loaded from another place than the file with the breakpoints.
#
# An archive, a compiled module, an installed package and a file with the same name in another directory all have this
# effect: the debugger verifies the breakpoint, because its file exists, but the file is not what the job runs.

MAIN = "__main__"


def describe_other_file(file: str) -> str | None:
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


# Finds tools that have taken the place of the debugger in this process, so that breakpoints are not hit.
#
# Up to Python 3.11, the debugger needs the trace function of each thread, and a thread has only one: a coverage tool or
# a profiler that sets its own removes the debugger's. Later versions have `sys.monitoring`, where each tool has an id,
# and the debugger needs one particular id.

WAY_OUT = (
    "hint: run the job without it while you debug, or with Python 3.12 or later, where the debugger does not need a "
    "trace function"
)
_CALL = re.compile(r'File "(.*)", line (\d+)')
"""The caller of `sys.settrace` in pydevd's warning."""


def foreign_tool() -> str:
    """Return a line if another tool has the debugger's id in `sys.monitoring`; otherwise ""."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # Python 3.12
    tool = monitoring.get_tool(monitoring.DEBUGGER_ID)
    if tool == "pydevd":
        return ""
    holder = "nothing" if tool is None else repr(tool)
    return (
        f"breakpoints are not hit: {holder} uses the debugger's tool id of sys.monitoring ({monitoring.DEBUGGER_ID}). "
        "hint: run the job without that tool while you debug"
    )


class TracerWatch:
    """Reports other trace functions, each once.

    Args:
        warnings: pydevd's warnings about calls of `sys.settrace` that have been shown. pydevd adds each call once, so
            this class empties them.
    """

    def __init__(self, warnings: MutableMapping[str, object]) -> None:
        self._warnings = warnings
        self._warnings.clear()
        self._probe = _MainThreadProbe()
        self._reported: set[str] = set()

    def lines(self) -> Iterator[str]:
        """Yield a line for each trace function that was found since the last call."""
        places = self._places()
        name = self._probe.name()
        if name and name not in self._reported:
            self._reported.update({name, *places})
            at = f" (set in {places[0]})" if places else ""
            yield f"breakpoints in the main thread are not hit: {name}{at} has replaced the debugger. {WAY_OUT}"
            return
        for place in places:
            if place not in self._reported:
                self._reported.add(place)
                yield f"breakpoints may not be hit in a thread that called sys.settrace() in {place}. {WAY_OUT}"

    def _places(self) -> list[str]:
        found = [_CALL.search(warning) for warning in list(self._warnings)]
        return [f"{'/'.join(Path(each[1]).parts[-2:])}:{each[2]}" for each in found if each is not None]


class _MainThreadProbe:
    """Reads the trace function of the main thread, when that thread next runs Python code.

    Only functions written in C are called there, because a developer could step into others.
    """

    _kept: ClassVar[list[_MainThreadProbe]] = []
    """All probes: the call may come long after the editor has left, when a function written in C returns."""

    def __init__(self) -> None:
        self._kept.append(self)
        self._found: list[object] = []
        self._call: object = None
        self._last_call: object = None
        """C callbacks, which must outlive their call."""

    def name(self) -> str:
        """Return the name of the trace function, if it was found since the last call and is not the debugger's."""
        if self._call is not None and not self._found:
            return ""
        names = [tracer_name(each) for each in self._found]
        self._found.clear()
        self._last_call, self._call = self._call, _pending_call(self._found)
        return names[0] if names else ""


def _pending_call(found: list[object]) -> object:
    """Make the main thread append its trace function to a list (Py_AddPendingCall)."""
    once = itertools.islice(iter(sys.gettrace, found), 1)
    appended = map(found.append, once)
    # `countOf` compares the result of `append`, which is None, with the argument, and returns the 0 that is required.
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(functools.partial(operator.countOf, appended))
    ctypes.pythonapi.Py_AddPendingCall(call, ctypes.c_void_p(1))
    return call


# Finds breakpoints that are not hit: in a file that the job does not execute, in a line that has already run, and in
# functions that torch.compile has compiled, because the code that is executed instead has no such lines.
#
# Which functions torch has compiled as parts of others is known only from private data of torch, and from a search of
# all objects of the job. So one line is about all of them.

UNCOMPILED = "force_eager"
"""The stance of torch.compiler in which the functions themselves are executed."""


class Place(NamedTuple):
    """Where a breakpoint is."""

    file: str
    line: int


def is_executed(file: str) -> bool:
    """Return whether a thread executes code of a file, which need not be a module: `runpy.run_path` makes none."""
    return any(_file(frame.f_code) == file for _, frame in all_frames())


def has_run(place: Place) -> bool:
    """Return whether a line of the script, outside of functions, has been executed and will not be executed again."""
    import dis  # noqa: PLC0415 - needed only if an editor attaches

    frames = (each for each in stack_of(threading.main_thread().ident) if each.f_code.co_name == "<module>")
    frame = next((each for each in frames if _file(each.f_code) == place.file), None)
    if frame is None or frame.f_lineno == place.line:
        return False
    code, now = frame.f_code, frame.f_lasti
    end = max((end for _, end, line in code.co_lines() if line == place.line), default=now + 1)
    jumps = (each for each in dis.get_instructions(code) if each.opcode in {*dis.hasjrel, *dis.hasjabs})
    return end <= now and not any(each.offset >= now and each.argval < end for each in jumps)


def describe_compiled() -> str:
    """Return a line if compiled code is executed in place of functions; otherwise ""."""
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    if not has_compiled_code() or getattr(stance, "stance", "") == UNCOMPILED:
        return ""
    way = "start the job with TORCHDYNAMO_DISABLE=1"
    if hasattr(sys.modules.get("torch.compiler"), "set_stance"):
        call = f"torch.compiler.set_stance('{UNCOMPILED}')"
        way = f"run relay-client eval \"{call}\" to execute the uncompiled code ('default' ends this), or {way}"
    return f"breakpoints are not hit in functions that torch.compile has compiled, and in what these call. hint: {way}"


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve())
