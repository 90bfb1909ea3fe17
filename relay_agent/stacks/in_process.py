"""Collects the stacks of all threads of this process, to determine why a job hangs.

There are two methods. `collect` runs in a helper thread of the job and provides all information, but needs the GIL.
`register_dump` makes faulthandler write the stacks when a signal arrives, in C and even while C code holds the GIL; the
node's agent sends that signal (`relay_agent.stacks.out_of_process`). Nothing here may disturb the job.
"""

from __future__ import annotations

import faulthandler
import functools
import itertools
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from relay_agent.job.gevent_originals import json, threading
from relay_agent.job.own_descriptor import OwnDescriptor, above_streams
from relay_core.agent_api.stacks import HELPER_THREAD, Frame, ProcessStacks, ThreadStack, is_library, public_name

if TYPE_CHECKING:
    from relay_core.agent_api.questions import ReadStacks

MAX_FRAMES = 100
"""Maximum number of innermost frames per thread; the same as faulthandler's limit, so that both methods return equal
stacks."""
MAX_THREADS = 100
"""Maximum number of threads per process, also faulthandler's limit; they fit into one message to the agent."""

_OWN_PACKAGE = PurePath(__file__).parent.parent
_WAITING = {"threading.py", "contextlib.py"}
"""Modules of the standard library in which relay-agent and debugpy wait."""
_STARTING = {"threading.py", "pydev_monkey.py"}
"""Modules with the outermost frames of a thread; the second one is the debugger's, for threads that the job starts."""
_Place = tuple[FrameType, "int | None"]
_FIRST_SIGNAL = 10
"""Offset from SIGRTMIN, because other tools use the lowest and the highest real-time signals."""


def read_stacks(question: ReadStacks) -> ProcessStacks:
    """Return what `collect` returns."""
    return ProcessStacks(HELPER_THREAD, tuple(collect(locals=question.locals)))


def collect(locals: bool = False) -> list[ThreadStack]:  # noqa: A002 - its name in the protocol and as an option
    """Return the stacks of this process's threads, the main thread first.

    Threads of relay-agent and of debugpy are omitted, and so is the calling thread unless it is the main thread. The
    stack of a thread that is waiting for a debugger, or is stopped by one, ends with the job's own code; after a crash,
    it ends with the frame that raised the exception.

    Args:
        locals: Also capture the local variables, which takes at most half a second.
    """
    main, caller = threading.main_thread().ident, threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: list[tuple[int, list[_Place]]] = []
    raised = _raised()
    for ident, top in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):  # noqa: SLF001 - its documented name
        stack = list(with_callers(top))
        if ident != main and (ident == caller or is_helper([frame.f_code.co_filename for frame in reversed(stack)])):
            continue
        found.append((ident, _own_places(stack, raised.get(ident))[:MAX_FRAMES]))
        if len(found) == MAX_THREADS:
            break
    values: Iterator[Mapping[str, str]] = itertools.repeat({})
    if locals:
        from relay_agent.stacks.capture import capture  # noqa: PLC0415 - needed for `locals` only

        values = iter(capture(frame for _, places in found for frame, _ in places))
    from relay_agent.stacks.stopped import stopped_threads  # noqa: PLC0415 - few processes are asked

    stopped = stopped_threads()
    threads = []
    for ident, places in found:
        frames = [_describe(*place, next(values)) for place in places]
        name = names.get(ident, f"thread {ident:#x}")
        threads.append(ThreadStack(name, ident, ident == main, tuple(frames[::-1]), stopped.get(ident, False)))
    return threads


def capture_callers(frame: FrameType, count: int, *, most: int) -> tuple[Frame, ...]:
    """Return a frame and its callers in the user's own code, innermost last, with their variables.

    Args:
        frame: The innermost frame, which is returned in any case.
        count: Maximum number of frames.
        most: Maximum number of characters in all values together.
    """
    from relay_agent.stacks.capture import capture  # noqa: PLC0415 - as above
    from relay_agent.stacks.local_names import copied_names, local_names  # noqa: PLC0415 - as above

    own = (each for each in with_callers(frame) if each is frame or is_users(each))
    frames = list(itertools.islice(own, count))
    is_traced = sys.gettrace() is not None or sys.getprofile() is not None  # perhaps for one of the callers
    found = zip(frames, capture(frames, most=most, read=copied_names if is_traced else local_names), strict=True)
    return tuple(_describe(each, each.f_lineno, values) for each, values in found)[::-1]


def held_frames(ident: int, *, is_stopped: bool) -> list[FrameType]:
    """Return the frames of a thread's own code, innermost first, if the thread is halted; otherwise none.

    Args:
        ident: The thread.
        is_stopped: Whether a debugger has stopped it; a thread that is waiting for a debugger or is held at an
            exception is halted, too.
    """
    stack = stack_of(ident)
    held = _raised().get(ident)
    inner = next((frame for frame in stack if PurePath(frame.f_code.co_filename).name not in _WAITING), None)
    waits = inner is not None and PurePath(inner.f_code.co_filename).is_relative_to(_OWN_PACKAGE)
    if not stack or (held is None and not waits and not is_stopped):
        return []
    return [frame for frame, _ in _own_places(stack, held)]


def running_frames(ident: int) -> list[FrameType]:
    """Return the frames of a thread's code outside of libraries, innermost first, while the thread executes them."""
    return [each for each in stack_of(ident) if is_users(each) and not _is_debugger_code(each.f_code.co_filename)]


def is_helper(files: list[str]) -> bool:
    """Whether a thread other than the main thread belongs to relay-agent or debugpy, judged by the files in its stack.

    Args:
        files: The file of each frame, the innermost last.
    """
    return _is_debugger_code(next((file for file in files if PurePath(file).name not in _STARTING), ""))


def _is_debugger_code(file: str) -> bool:
    path = PurePath(file)
    return path.is_relative_to(_OWN_PACKAGE) or "debugpy" in path.parts


def _raised() -> Mapping[int, TracebackType]:
    """Return the tracebacks of the exceptions at which threads are held, by thread ident."""
    crash = sys.modules.get("relay_agent.debuggee.post_mortem")
    return crash.tracebacks() if crash is not None else {}


def _own_places(stack: list[FrameType], held: TracebackType | None) -> list[_Place]:
    """Return the frames of the job's own code and their lines, the innermost first.

    Args:
        stack: The current stack, the innermost frame first.
        held: Traceback of the exception at which this thread is held, if any.
    """
    inner = [frame.f_code.co_filename for frame in stack]
    waits = list(itertools.takewhile(lambda file: _is_debugger_code(file) or PurePath(file).name in _WAITING, inner))
    own = stack[len(waits) :] if any(map(_is_debugger_code, waits)) else stack
    if held is None:
        return [(frame, frame.f_lineno) for frame in own]
    places: list[_Place] = []
    while held is not None:
        if not _is_debugger_code(held.tb_frame.f_code.co_filename):
            places.append((held.tb_frame, held.tb_lineno))
        held = held.tb_next
    first = places[0][0] if places else None
    outer = own[own.index(first) + 1 :] if first in own else []  # only functions that handle the exception
    return [*places[::-1], *((frame, frame.f_lineno) for frame in outer)]


def stack_of(ident: int | None) -> list[FrameType]:
    """Return the frames of a thread, innermost first; an empty list if the thread has ended."""
    return list(with_callers(sys._current_frames().get(ident or 0)))  # noqa: SLF001 - its documented name


def all_frames() -> Iterator[tuple[int, FrameType]]:
    """Yield all frames that are being executed, each one with the ident of its thread."""
    for ident, top in sys._current_frames().items():  # noqa: SLF001 - its documented name
        for frame in with_callers(top):
            yield ident, frame


def with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def program_frame(frame: FrameType) -> FrameType:
    """Return the innermost frame of the program's own code, where an editor stops with `justMyCode`.

    If all frames belong to libraries, `frame` is returned.
    """
    return next(filter(is_users, with_callers(frame)), frame)


def is_users(frame: FrameType) -> bool:
    """Return whether a frame executes the user's code: that of a file that is not installed, typed, or given to `exec`.

    Generated methods, such as those of dataclasses, are named `<string>`, too, but have the variables of a module.
    """
    is_given = frame.f_code.co_filename == "<string>" and not dict.__contains__(frame.f_globals, "__name__")
    return is_given or not is_library(frame.f_code.co_filename)


def _describe(frame: FrameType, line: int | None, values: Mapping[str, str]) -> Frame:
    code = frame.f_code
    # The line number is None for instructions that belong to no line.
    return Frame(public_name(code.co_filename), line or code.co_firstlineno, code.co_name, values)


_registered: dict[int, OwnDescriptor] = {}
"""The signal, of which there is at most one, and the file that faulthandler writes to when the signal arrives."""


def register_dump(path: Path) -> int | None:
    """Make a signal write the stacks of all threads to a file, and return the signal; None if none is available.

    The file must be in a directory that only this user can enter. Its first line is JSON, `{"pid", "main",
    "descriptor"}`, from which the agent checks that the process still handles the signal. A second call switches to
    another file; this also works in a forked child, which inherits the signal.

    Raises:
        OSError: the file cannot be created.
    """
    number, previous = next(iter(_registered.items()), (None, None))
    if number is None and (number := _find_free_signal()) is None:
        return None
    _observe_handlers()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    # exec closes it, which shows the agent that the handler is gone
    descriptor = above_streams(os.open(path, flags, 0o600))
    header = {"pid": os.getpid(), "main": threading.main_thread().ident, "descriptor": descriptor}
    os.write(descriptor, json.dumps(header).encode() + b"\n")
    _registered[number] = OwnDescriptor(descriptor)
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    if previous is not None and previous.number != descriptor:  # it may have the number of a closed one
        previous.close()
    if signal.getsignal(number) is not signal.SIG_DFL:  # the job has set a handler since the signal was found free
        _leave_signal_to_job()
        return None
    return number


def _leave_signal_to_job() -> None:
    """Unregister the dump signal, and close the file, from which the agent sees that it must not send the signal."""
    while _registered:
        number, descriptor = _registered.popitem()
        faulthandler.unregister(number)
        descriptor.close()


@functools.cache
def _observe_handlers() -> None:
    """Leave the dump signal to the job before `signal.signal` gives it a handler of the job.

    The agent's signal would call that handler, which may end the job. /proc shows only that a handler exists, and the
    agent sends the signal when no code of this process can look. So the module that `signal.signal` calls is changed.
    C code that sets a handler of its own is not noticed.
    """
    module: Any = sys.modules["_signal"]
    set_handler = module.signal

    def observed(number: int, handler: object, /) -> object:
        if number in _registered:
            _leave_signal_to_job()
        return set_handler(number, handler)

    module.signal = functools.wraps(set_handler)(observed)


def dump_signals() -> range:
    """Return the real-time signals of which one is chosen for dumps; none on systems without them."""
    if not hasattr(signal, "SIGRTMIN") or not hasattr(faulthandler, "register"):
        return range(0)
    return range(signal.SIGRTMIN + _FIRST_SIGNAL, signal.SIGRTMAX)


def _find_free_signal() -> int | None:
    """Return a real-time signal that this process does not catch, ignore or block, in Python or in C."""
    taken = 0
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:")):
                taken |= int(line.split()[1], 16)
    except OSError:
        return None
    return next((number for number in dump_signals() if not taken >> (number - 1) & 1), None)
