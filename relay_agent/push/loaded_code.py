"""The parts of a source file that this process has loaded: modules, functions, and the frames that execute them.

It also finds what these frames may execute next (`steps_ahead`), and so whether a loop will call a function again.

Why functions are searched for among all objects (`gc.get_objects`) and not from the modules: a module leads only to
what has a name in it or in its classes. A function in a closure, under a decorator or in a table of callbacks would
keep the old code, and the job would execute both versions. The price is a pass over all objects of the process with the
GIL held: 50 ms for a million objects. The search from the modules remains for objects that the collector does not list
(`gc.freeze`).

Why that pass is a single expression in C (`callables`): another thread must not continue while somebody refers to all
objects. A tuple that it is making must have no other reference (`tuple(generator)` would raise SystemError), and an
object that it drops would be freed later, by the wrong thread.

Why code objects are compared by identity: `==` compares what they do and ignores the file, so two equal functions of
different modules would be taken for each other.

Why frames have two sources: a frame that executes is known to the interpreter only, and a suspended generator or
coroutine only to the collector, since no thread leads to it (`gc.get_referrers` finds those that have the code). A
suspended one counts as running: it continues with the old code, which a push has to report.

What is ugly: a module is found by its path, and in a library only if it has the file's name. Resolving all links of
thousands of files of libraries would take longer than the push, so a library that was loaded through a link with
another name is not found; `--as` names it.
"""

from __future__ import annotations

import dis
import gc
import inspect
import itertools
import os
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, NamedTuple

from relay_agent.inject._relay_debug_programs import what_runs
from relay_agent.job.paths import start_directory
from relay_agent.push.new_file import qualified_codes
from relay_agent.stacks.in_process import all_frames, with_callers
from relay_core.agent_api.stacks import is_library
from relay_core.errors import ConfigurationError
from relay_core.grouping import by_key

NAME_IT = "use --as to name the file on the node"
CHECK_NAME = "check the path after --as: absolute, or relative to the directory in which the job was started"
"""The hint if the path was already given with --as: the client then sends no other paths."""


class WatchedCode(NamedTuple):
    """A copy of a code object with calls, as a watch makes it up to Python 3.11."""

    code: CodeType
    original: CodeType
    calls: frozenset[int]
    """The ids of the calls that were inserted, also into the code inside it."""


watched_codes: dict[int, WatchedCode] = {}
"""All such copies, by the id of their code; kept, because a frame or a new closure may have an old one."""


def original_of(code: CodeType) -> CodeType:
    """Return the code object that the job has loaded, for itself or for a copy of a watch."""
    return watched_codes[id(code)].original if id(code) in watched_codes else code


def code_id(frame: FrameType) -> int:
    """Return the id of the code that a frame executes, as the job has loaded it."""
    return id(original_of(frame.f_code))


def find_modules(file: str, paths: Collection[str] = ()) -> list[ModuleType]:
    """Return the modules that were loaded from a file; `__main__` may be one of several.

    Args:
        file: Absolute, or relative to the directory in which this process was started.
        paths: Other such paths, of which the first one that was loaded is taken, before `file`.

    Raises:
        ConfigurationError: no module was loaded from the file.
    """
    start = start_directory() or "."
    wanted = [os.path.realpath(os.path.join(start, each)) for each in (*paths, file)]  # noqa: PTH118 - as module paths
    names = {PurePath(each).stem for each in (*paths, file, *wanted)}
    found: dict[str, list[ModuleType]] = {}
    for module in list(sys.modules.values()):
        path = _path(module)  # a link may have any name; to resolve thousands of files of libraries takes time
        if path and (_stem(path) in names or not is_library(path)):
            found.setdefault(os.path.realpath(path), []).append(module)
    loaded = next((path for path in wanted if path in found), None)
    if loaded is None:
        directories = {os.path.dirname(path) for path in wanted}  # noqa: PTH120 - as above
        raise _not_loaded(file, directories, found, NAME_IT if paths else CHECK_NAME)
    return found[loaded]


def filename_of(module: ModuleType) -> str:
    """Return the file name in the code objects of a module."""
    names = vars(module)
    for value in list(names.values()):
        if type(value) is FunctionType and value.__globals__ is names and value.__module__ == module.__name__:
            return value.__code__.co_filename
    return _path(module)


def functions_of(filename: str) -> dict[str, list[FunctionType]]:
    """Return all functions of this process that were defined in a file, by qualified name."""
    own = [each for each in all_functions().values() if each.__code__.co_filename == filename]
    own = [each for each in own if each.__code__.co_flags & inspect.CO_OPTIMIZED]  # no running module or class
    names = _qualified_names(own)
    return by_key((names[id(function.__code__)], function) for function in own)


def functions_beside_users(names: set[str]) -> dict[int, str]:
    """Return the job's functions in all files that have a function which uses one of these names.

    A function that uses a constant may be a main loop, which is not called again.

    Args:
        names: Names of a module or a class.

    Returns:
        The qualified names of the functions, by the id of their code.
    """
    own = {id(each.__code__): each for each in all_functions().values() if not is_library(each.__code__.co_filename)}
    inner = ((each.__code__.co_filename, code) for each in own.values() for code in with_inner(each.__code__))
    files = {file for file, code in inner if not names.isdisjoint(code.co_names)}
    beside = [each for each in own.values() if each.__code__.co_filename in files]
    return {code: name for code, name in _qualified_names(beside).items() if not name.endswith(">")}


def all_functions() -> dict[int, FunctionType]:
    """Return all functions of this process by their ids; after `gc.freeze`, those that modules and classes have."""
    found = {id(each): each for each in callables() if type(each) is FunctionType}
    if not gc.get_freeze_count():
        return found
    # `isinstance` would ask `__class__`, which can be code of the job, as that of torch.distributed.reduce_op is.
    modules = [each for each in list(sys.modules.values()) if issubclass(type(each), ModuleType)]
    names = [object.__getattribute__(each, "__dict__") for each in modules]  # a lazy module would be loaded by `vars`
    return found | {id(each): each for own in names for each in _reachable(own, set())}


def callables() -> list[Any]:
    """Return all callable objects of this process that the collector lists; no Python code is executed meanwhile."""
    return list(filter(callable, itertools.chain.from_iterable(map(gc.get_objects, (None,)))))


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and all code objects inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from with_inner(each)


def _qualified_names(functions: list[FunctionType]) -> dict[int, str]:
    """Return the qualified name of each code object, by its id; `functools.wraps` changes only the function's name."""
    if sys.version_info >= (3, 11):
        return {id(function.__code__): function.__code__.co_qualname for function in functions}
    names: dict[int, str] = {}
    inner: dict[int, str] = {}
    for function in functions:
        code, name = function.__code__, function.__qualname__
        is_own = name.rpartition(".")[2] == code.co_name
        names[id(code)] = name if is_own else f"?.{code.co_name}"
        if is_own:
            inner |= {id(found): nested for nested, found in qualified_codes(code, f"{name}.<locals>.")}
    return {code: inner.get(code, name) for code, name in names.items()}


def module_frames(filename: str) -> list[FrameType]:
    """Return the frames that are executing the top level of a file."""
    frames = (frame for _, frame in all_frames())
    return [each for each in frames if (each.f_code.co_name, each.f_code.co_filename) == ("<module>", filename)]


def running_codes(
    codes: Sequence[CodeType], threads: Mapping[int | None, str], without: FrameType | None = None
) -> list[tuple[int, str]]:
    """Return where code is being executed, with the id of the code object: `is running at train.py:41 in MainThread`.

    Args:
        codes: The code objects.
        threads: The names of the threads by their idents.
        without: A frame to omit.
    """
    found = []
    ids = {*map(id, codes)}
    for ident, frame in all_frames():
        if (code := code_id(frame)) in ids and frame is not without:
            found.append((code, f"is running at {place_of(frame)} in {threads.get(ident, 'a thread')}"))
    return [*found, *((code_id(frame), f"is suspended at {place_of(frame)}") for frame in suspended_frames(codes))]


def calls_outside_loops(frame: FrameType) -> list[FrameType]:
    """Return the frames of the calls on a stack, the outermost first, up to the first one that is in a loop.

    The loop may repeat the calls that it contains; the calls that are returned are not repeated by their callers, as
    far as these are Python code.
    """
    found = []
    for each in [*with_callers(frame)][::-1]:
        found.append(each)
        if _is_in_loop(each):
            break
    return found


JUMPS = {*dis.hasjrel, *dis.hasjabs}
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
_ENDS |= {"JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
"""The instructions after which the next one is not executed."""


def _is_in_loop(frame: FrameType) -> bool:
    """Return whether a frame may execute its current instruction again."""
    now, *later = steps_ahead(frame)
    return any(step is now for step in later)


def steps_ahead(frame: FrameType) -> list[dis.Instruction]:
    """Return the current instruction of a frame, and those that it may execute after it, also after an exception.

    The order of the instructions does not show that: from Python 3.12, handlers of exceptions are at the end, and jump
    back to what follows their statement.
    """
    steps = [*dis.get_instructions(frame.f_code)]
    indices = {step.offset: index for index, step in enumerate(steps)}
    handlers = _handlers(frame.f_code, steps)
    here = sum(step.offset <= frame.f_lasti for step in steps) - 1  # which may be between two of them, after a cache
    seen: set[int] = set()
    waiting = [max(0, here)]
    while waiting:
        step = steps[index := waiting.pop()]
        targets = {target for start, end, target in handlers if start <= step.offset < end}
        targets |= {step.argval} if step.opcode in JUMPS else set()
        following = {indices[target] for target in targets}
        following = {each for each in following if steps[each].opname != "SEND"}  # the wait of an `await`
        following |= {index + 1} if step.opname not in _ENDS else set()
        waiting += following - seen
        seen |= following
    return [steps[index] for index in (max(0, here), *sorted(seen))]


def _handlers(code: CodeType, steps: Iterable[dis.Instruction]) -> list[tuple[int, int, int]]:
    """Return where exceptions are handled: the offsets of the first instruction, the one after the last, the handler.

    In Python 3.10, where blocks are begun by instructions, all between these and the handler counts.
    """
    if sys.version_info >= (3, 11):
        return [(each.start, each.end, each.target) for each in dis.Bytecode(code).exception_entries]
    begin = (step for step in steps if step.opname.startswith("SETUP_") and step.opcode in JUMPS)
    return [(step.offset, step.argval, step.argval) for step in begin]  # SETUP_ANNOTATIONS is none


_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def suspended_frames(codes: Iterable[CodeType]) -> list[FrameType]:
    """Return the frames of the generators and coroutines of these code objects that are not being executed."""
    wanted = [code for code in codes if code.co_flags & _SUSPENDED]
    ids = {*map(id, wanted)}
    wanted += [each.code for each in list(watched_codes.values()) if id(each.original) in ids]
    found = map(_suspended_frame, gc.get_referrers(*wanted) if wanted else ())
    return [frame for frame in found if frame is not None]


def _suspended_frame(value: object) -> FrameType | None:
    if type(value) is GeneratorType:
        return None if value.gi_running else value.gi_frame
    if type(value) is CoroutineType:
        return None if value.cr_running else value.cr_frame
    if type(value) is AsyncGeneratorType:  # `ag_running` is also true while it awaits something
        return None if any(frame is value.ag_frame for _, frame in all_frames()) else value.ag_frame
    return None


def _not_loaded(file: str, directories: Container[str], loaded: Iterable[str], hint: str) -> ConfigurationError:
    alike = (path for path in loaded if _stem(path) == PurePath(file).stem)
    others = sorted(path for path in alike if not is_library(path))
    binary = next((PurePath(path) for path in others if not path.endswith(".py")), None)
    if binary is not None and str(binary.parent) in directories:
        return ConfigurationError(f"{binary.name} is a C extension, which cannot be replaced")
    if what_runs(sys.orig_argv)[0] in {"script", "module"} and not _path(sys.modules["__main__"]):
        return ConfigurationError(
            f"the program has not started yet, and has not loaded {file}", hint="let it load the file, and push again"
        )
    if others:
        hint = f"the job has loaded {', '.join(others[:5])}; use --as to name one of them"
    return ConfigurationError(f"no module was loaded from {file}", hint=hint)


def _stem(path: str) -> str:
    return PurePath(path).name.partition(".")[0]


def place_of(frame: FrameType) -> str:
    """Return where a frame is: `train.py:41`."""
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _reachable(names: dict[str, object], seen: set[int]) -> Iterator[FunctionType]:
    for value in list(names.values()):
        if type(value) is FunctionType:
            yield value
        elif issubclass(type(value), type) and id(value) not in seen:
            seen.add(id(value))
            yield from _reachable(dict(type.__getattribute__(value, "__dict__")), seen)  # no code of a metaclass


def _path(module: object) -> str:
    """Return the file of a module; "" if it has none, or is an object that raises an exception."""
    try:
        path = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001 - a library may put anything into `sys.modules`
        return ""
    return path if isinstance(path, str) else ""
