"""Finds breakpoints that are not hit: in other files, in compiled functions, behind, or because of another tracer."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.machinery
import itertools
import operator
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

from relay_agent.job.gevent_originals import threading, time
from relay_agent.stacks.in_process import with_callers

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


def tracer_name(tracer: Any) -> str:
    """Return the qualified name of a trace function; "" if there is none, or if it belongs to the debugger."""
    if tracer is None:
        return ""
    while isinstance(tracer, functools.partial):
        tracer = tracer.func
    kind = type(tracer)
    module = str(getattr(tracer, "__module__", None) or kind.__module__)
    code = getattr(tracer, "__code__", None)
    file = Path(getattr(code, "co_filename", "")).name
    package = module.partition(".")[0]
    is_own = package == "relay_agent" or package.startswith(("pydev", "_pydev", "debugpy")) or file == "pydevd.py"
    return "" if is_own else f"{module}.{getattr(tracer, '__qualname__', kind.__qualname__)}"


# Finds breakpoints in functions that torch.compile has compiled: the code that is executed instead has no such lines.
#
# torch.compile has a list of the code objects that it has compiled. The functions that these call are compiled as parts
# of them. No list has the parts, but the guards do, the conditions under which compiled code may be executed: they
# contain the ids of the code objects of functions, and of the types of modules, of which `forward` and the methods that
# it calls are parts. An alternative was to examine each compilation as it happens, which must begin before torch is
# imported and so would concern jobs that nobody debugs. The names are private to torch; where they are missing, nothing
# is found.

FORWARD = "forward"
RESUMED = "torch_dynamo_resume_in_"
"""Prefix of the names of functions that torch generates from the rest of another one."""
UNCOMPILED = "force_eager"
"""The stance of torch.compiler in which the functions themselves are executed."""
_GUARD = re.compile(r"___check_(?:obj_id\(.*\.__code__|type_id\(.*), (\d+)\)")


SHARE = 100
"""The time between two searches divided by the time of one, which grows with the number of objects in the job and for
which the job waits."""


class Place(NamedTuple):
    """Where a breakpoint is."""

    file: str
    line: int


class _Function(NamedTuple):
    code: CodeType
    owner: type | None = None
    """The class of which it is a method."""


class CompiledWatch:
    """Finds the compiled functions that contain breakpoints, anew if something has been compiled since.

    A job that keeps compiling is searched in one hundredth of the time.
    """

    def __init__(self) -> None:
        self._state: object = None
        self._names: dict[int, str] = {}
        self._next = 0.0
        """When the next search may begin."""

    def names(self, places: Mapping[int, Place]) -> dict[int, str]:
        """Return the names of the compiled functions that contain breakpoints, by the breakpoints' keys.

        No code of the job runs.
        """
        try:
            roots = [] if _is_uncompiled() else list(_roots())
            state = [(id(code), count) for code, count in roots], dict(places)
            if state != self._state and (not roots or (started := time.monotonic()) >= self._next):
                self._state, self._names = state, _find([code for code, _ in roots], places) if roots else {}
                self._next = time.monotonic() + SHARE * (time.monotonic() - started) if roots else 0.0
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):  # another version of torch
            return {}
        return self._names


def _find(roots: list[CodeType], places: Mapping[int, Place]) -> dict[int, str]:
    compiled = {id(root) for root in roots} | _guarded()
    functions = [_Function(root) for root in roots]
    for file in {place.file for place in places.values()}:
        functions += (each for each in _functions_in(file) if _is_compiled(each, compiled))
    return {key: _name(found) for key, place in places.items() if (found := _at(place, functions)) is not None}


def is_executed(file: str) -> bool:
    """Return whether a thread executes code of a file, which need not be a module: `runpy.run_path` makes none."""
    return any(_file(frame.f_code) == file for each in sys._current_frames().values() for frame in with_callers(each))  # noqa: SLF001 - it has no public name


def has_run(place: Place) -> bool:
    """Return whether a line of the script, outside of functions, has been executed and will not be executed again."""
    import dis  # noqa: PLC0415 - needed only if an editor attaches

    frames = with_callers(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001 - as above
    frame = next(
        (each for each in frames if each.f_code.co_name == "<module>" and _file(each.f_code) == place.file), None
    )
    if frame is None or frame.f_lineno == place.line:
        return False
    code, now = frame.f_code, frame.f_lasti
    end = max((end for _, end, line in code.co_lines() if line == place.line), default=now + 1)
    jumps = (each for each in dis.get_instructions(code) if each.opcode in {*dis.hasjrel, *dis.hasjabs})
    return end <= now and not any(each.offset >= now and each.argval < end for each in jumps)


def describe_compiled(names: list[str]) -> str:
    """Return a line about functions in which breakpoints are not hit."""
    listed = ", ".join(names)
    what = f"{listed}, which torch.compile has compiled"
    if len(names) > 1:
        what = f"functions that torch.compile has compiled: {listed}"
    way = "start the job with TORCHDYNAMO_DISABLE=1"
    if hasattr(sys.modules.get("torch.compiler"), "set_stance"):
        call = f"torch.compiler.set_stance('{UNCOMPILED}')"
        way = f"run relay-client eval \"{call}\" to execute the uncompiled code ('default' ends this), or {way}"
    return f"breakpoints are not hit in {what}. hint: {way}"


def _is_uncompiled() -> bool:
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return getattr(stance, "stance", "") == UNCOMPILED


def _roots() -> Iterator[tuple[CodeType, int]]:
    """Yield the code objects in place of which compiled code may be executed, with the number of its versions."""
    seen = getattr(getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None), "seen", ())
    for code in [reference() for reference in list(seen)]:
        if code is not None and not code.co_name.startswith(RESUMED) and (count := _count_versions(code)):
            yield code, count


def _count_versions(code: CodeType) -> int:
    return len(sys.modules["torch._C._dynamo.eval_frame"]._debug_get_cache_entry_list(code))  # noqa: SLF001 - as above


def _guarded() -> set[int]:
    """Return the ids of code objects and types in all guards."""
    kind = sys.modules["torch._dynamo.guards"].GuardManagerWrapper
    # The compiled code has the guards, but a reference to it from here could outlive it.
    guards = [each for each in gc.get_objects() if type(each) is kind]
    return {int(match[1]) for each in guards for part in each.code_parts for match in _GUARD.finditer(part)}


def _functions_in(file: str) -> Iterator[_Function]:
    """Yield the functions and methods that the modules from a file contain."""
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):
            names = ModuleType.__getattribute__(module, "__dict__")
            path = names.get("__file__")
            if type(path) is str and Path(path).name == Path(file).name and str(Path(path).resolve()) == file:
                yield from _functions_of(names, None, set())


def _functions_of(names: Mapping[str, Any], owner: type | None, seen: set[int]) -> Iterator[_Function]:
    for value in list(names.values()):
        function = value.__func__ if type(value) in {staticmethod, classmethod} else value
        while type(function) is FunctionType and id(function) not in seen:
            seen.add(id(function))
            yield _Function(function.__code__, owner)
            function = vars(function).get("__wrapped__")
        if issubclass(type(value), type) and id(value) not in seen:
            seen.add(id(value))
            yield from _functions_of(type.__getattribute__(value, "__dict__"), value, seen)


def _is_compiled(function: _Function, compiled: set[int]) -> bool:
    if id(function.code) in compiled:
        return True
    owner = function.owner
    if owner is None or sys.modules["torch"].nn.Module not in type.__getattribute__(owner, "__mro__"):
        return False
    return function.code.co_name in _part_names(owner) and any(id(each) in compiled for each in _with_subclasses(owner))


def _part_names(owner: type) -> set[str]:
    """Return the names of `forward` and of the methods that it and they call."""
    codes = {
        each.code.co_name: each.code for each in _functions_of(type.__getattribute__(owner, "__dict__"), owner, set())
    }
    found, pending = set[str](), [FORWARD]
    while pending:
        name = pending.pop()
        if name in codes and name not in found:
            found.add(name)
            pending += codes[name].co_names
    return found


def _with_subclasses(owner: type) -> Iterator[type]:
    yield owner
    subclasses: list[type] = type.__subclasses__(owner)
    for each in subclasses:
        yield from _with_subclasses(each)


def _at(place: Place, functions: list[_Function]) -> _Function | None:
    """Return the function that a breakpoint is in; the line of its `def` is not in it."""
    for function in functions:
        if _has_line(function.code, place.line, function.code.co_firstlineno) and _file(function.code) == place.file:
            return function
    return None


def _has_line(code: CodeType, line: int, start: int) -> bool:
    if any(found == line for _, _, found in code.co_lines() if found != start):
        return True
    return any(_has_line(each, line, start) for each in code.co_consts if isinstance(each, CodeType))


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve())


def _name(function: _Function) -> str:
    name = function.code.co_name if function.owner is None else f"{function.owner.__name__}.{function.code.co_name}"
    return str(getattr(function.code, "co_qualname", name))
