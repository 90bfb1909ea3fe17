"""The phases of a push in this process, as described in `relay_core.agent_api.push`.

Each phase is executed in a separate thread, and waits for the previous phase. The main thread is involved only while it
is held and while the code is swapped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType

from relay_agent.collectives.flight_recorder import begun_collectives
from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.main_thread import call_in_main_thread
from relay_agent.job.stderr import describe_exception
from relay_agent.job.torch_compiler import has_compiled_code
from relay_agent.push.loaded_code import calls_outside_loops, code_id, filename_of, find_modules, functions_of
from relay_agent.push.new_file import NewFile
from relay_agent.push.old_file import OldFile
from relay_agent.push.sources import pushed_source, replace_source
from relay_agent.push.swap import Swap, replaced_codes
from relay_agent.stacks.in_process import stack_of, with_callers
from relay_agent.stacks.stopped import stopped_threads
from relay_core.agent_api.push import LEASE, Phase, Push, Pushed, State
from relay_core.agent_api.requests import FileDigest
from relay_core.errors import ConfigurationError


class Hold:
    """Holds the main thread when it calls one of the given functions, until it is released or the hold is not extended.

    A pending call sets a profile function, which Python then calls at each function call in the main thread. It is
    removed at the end of the push.

    Args:
        functions: The names of the functions, by the id of their code.
        until: When to give up, in seconds of `time.monotonic`.
    """

    def __init__(self, functions: Mapping[int, str], until: float) -> None:
        self.frame: FrameType | None = None
        """The frame of the call at which the main thread is held."""
        self.place = ""
        """The name of the function."""
        self.is_over = False
        """True if the main thread was released, or will not be held at all."""
        self.obstacle = ""
        """Why the main thread cannot be held."""
        self.counts: Mapping[str, int] = {}
        """How many collective operations the process had begun at the last call to one of the functions."""
        self.before: Mapping[str, int] = {}
        """The same at the call before that one, or at the beginning of the hold."""
        self._functions = functions
        self._affected = {**functions, **replaced_codes(functions.values())}
        """The names of the functions by the id of their code, and of code of theirs that calls may still execute."""
        self._unrepeated: set[int] = set()
        """The ids of the code that was being executed at the beginning of the hold, in calls that no loop repeats."""
        self._request = Push()
        self._until = until
        self._changed = threading.Condition()
        self._is_passing = False
        self._is_scheduled = call_in_main_thread(self._begin)

    def wait(self, request: Push, until: float) -> State:
        """Wait for a limited time until the main thread is held as a request requires, and return its state.

        Args:
            request: The request.
            until: When to give up the whole hold.
        """
        ends = time.monotonic() + request.seconds
        self._is_scheduled = self._is_scheduled or call_in_main_thread(self._begin)
        with self._changed:
            self._request, self._until = request, until
            is_elsewhere = request.again or request.function not in {"", self.place} or self._is_behind()
            self._is_passing = bool(self.place) and is_elsewhere
            self._changed.notify_all()
            while (not self.place or self._is_passing) and not self.is_over and time.monotonic() < ends:
                self._changed.wait(min(0.05, max(0.0, ends - time.monotonic())))
                if _is_stopped():
                    return State.STOPPED
            return State.HELD if self.place and not self._is_passing else State.RUNNING

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the functions that the main thread is executing, the outermost first."""
        codes = (code_id(frame) for frame in reversed(stack_of(threading.main_thread().ident)))
        return tuple(dict.fromkeys(self._affected[code] for code in codes if code in self._affected))

    @property
    def awaited(self) -> tuple[str, ...]:
        """The names of the functions at whose next call the main thread can be held."""
        return tuple(sorted({*self._functions.values()} - {self._affected[code] for code in self._unrepeated}))

    def end(self, action: Callable[[FrameType | None], None] = lambda _frame: None) -> bool:
        """Execute an action while the main thread is held, if it is held, and then let it continue.

        Return False if the hold had already timed out.
        """
        with self._changed:
            if self.is_over:
                return False
            try:
                action(self.frame)
            finally:
                self.is_over = True
                self._changed.notify_all()
        return True

    # In the main thread:

    def _begin(self) -> None:
        if self.is_over:
            return
        if sys.getprofile() is not None:
            self.obstacle, self.is_over = "the job has set a profile function", True
            return
        self.counts = begun_collectives()
        self._unrepeated = {*map(code_id, calls_outside_loops(sys._getframe()))} & self._affected.keys()  # noqa: SLF001 - its documented name
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_over or time.monotonic() > self._until:
            self.is_over = True
            sys.setprofile(None)
        elif event == "call" and (name := self._functions.get(id(frame.f_code))) and self._accepts(frame, name):
            self.before, self.counts = self.counts, begun_collectives()
            if not self._is_behind():
                self._hold(frame, name)

    def _is_behind(self) -> bool:
        return any(number < self._request.targets.get(name, 0) for name, number in self.counts.items())

    def _accepts(self, frame: FrameType, name: str) -> bool:
        return self._request.function in {"", name} and (self._request.nested or not self._is_inside(frame.f_back))

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Return whether a call that may be repeated is executing one of the functions: old code would call new."""
        codes = map(code_id, with_callers(frame))
        return any(code in self._affected and code not in self._unrepeated for code in codes)

    def _hold(self, frame: FrameType, name: str) -> None:
        with self._changed:
            self.frame, self.place = frame, name
            self._changed.notify_all()
            while not (self.is_over or self._is_passing):
                self._changed.wait(0.1)
                if time.monotonic() > self._until:
                    self.is_over = True
            self.frame, self.place, self._is_passing = None, "", False
        if self.is_over:
            sys.setprofile(None)


PREPARED_TIME = 60.0
"""Seconds for which a prepared push prevents another one."""
SAFE_POINT_TIME = 1.0
"""Seconds after which another thread swaps the code, if the main thread is not executing Python code."""
COMPILED = "torch.compile graphs that contain a changed function keep its old code; torch._dynamo.reset() discards them"
"""The remark if torch.compile has compiled anything."""


def start_phase(request: Push, respond: Callable[[Pushed], None], *, is_armed: Callable[[], bool]) -> None:
    """Execute a phase in a separate thread, and pass the result to `respond`.

    Args:
        request: The phase.
        respond: Called with the result of the phase.
        is_armed: Returns whether debugpy is tracing this process.
    """

    def execute() -> None:
        _pushing.interrupt(request)
        with _pushing.lock:
            try:
                result = _pushing.phase(request, is_armed=is_armed())
            except ConfigurationError as error:
                result = Pushed(error=error.sentence, hint=error.hint)
            except BaseException as error:  # noqa: BLE001 - a definition in the file may raise anything
                result = Pushed(error=describe_exception(error))
        respond(result)

    start_helper(execute, "relay-agent push")


@dataclass
class _Prepared:
    """A push between its phases."""

    id: str
    swap: Swap
    until: float
    hold: Hold | None = None


class _Pushing:
    """The push of this process; there is at most one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._prepared: _Prepared | None = None

    def interrupt(self, request: Push) -> None:
        """Let the main thread continue immediately if a push is aborted while another phase of the push is waiting."""
        prepared = self._prepared
        if request.phase is Phase.ABORT and prepared is not None and prepared.id == request.id and prepared.hold:
            prepared.hold.end()

    def phase(self, request: Push, *, is_armed: bool) -> Pushed:
        """Execute a phase; the lock is held."""
        if request.phase is Phase.PREPARE:
            return self._prepare(request)
        prepared = self._prepared
        if prepared is None or prepared.id != request.id:
            error = "" if request.phase is Phase.ABORT else "this process no longer has the new code; push again"
            return Pushed(error=error)
        if request.phase is Phase.HOLD:
            return self._hold(prepared, request)
        self._prepared = None
        if request.phase is Phase.ABORT:
            _undo(prepared)
            return Pushed(state=State.DONE)
        return _commit(prepared, is_armed=is_armed)

    def _prepare(self, request: Push) -> Pushed:
        if self._prepared is not None:
            if time.monotonic() < self._prepared.until:
                return Pushed(error="another push to this process is in progress")
            _undo(self._prepared)
            self._prepared = None
        modules = find_modules(request.file, request.paths)
        swap = _make_swap(modules, NewFile(request.source, filename_of(modules[0])))
        swap.prepare()
        self._prepared = _Prepared(request.id, swap, time.monotonic() + PREPARED_TIME)
        state = State.STOPPED if _is_stopped() else State.READY
        return Pushed(state=state, functions=tuple(sorted({*swap.functions.values()})), is_same=swap.is_empty)

    def _hold(self, prepared: _Prepared, request: Push) -> Pushed:
        until = time.monotonic() + request.seconds + LEASE
        prepared.until = until
        if prepared.hold is None:
            prepared.hold = Hold(prepared.swap.functions, until)
        hold = prepared.hold
        state = hold.wait(request, until)
        if hold.obstacle:
            return Pushed(error=f"the main thread cannot be held: {hold.obstacle}")
        if state is State.HELD:
            return Pushed(state=state, place=hold.place, counts=hold.counts, before=hold.before)
        return Pushed(state=state, counts=begun_collectives(), functions=hold.awaited, running=hold.running)


_pushing = _Pushing()


def _make_swap(modules: list[ModuleType], new: NewFile) -> Swap:
    live = functions_of(new.filename)
    functions = [function for found in live.values() for function in found]
    paths = (getattr(getattr(module, "__spec__", None), "cached", None) for module in modules)
    cached = next((path for path in paths if isinstance(path, str)), "")
    return Swap(modules, new, OldFile.find(new.filename, pushed_source(new.filename), functions, cached))


def _undo(prepared: _Prepared) -> None:
    prepared.swap.undo()
    if prepared.hold is not None:
        prepared.hold.end()


def _commit(prepared: _Prepared, *, is_armed: bool) -> Pushed:
    swap, new = prepared.swap, prepared.swap.new
    threads = {thread.ident: thread.name for thread in threading.enumerate()}

    def execute(held: FrameType | None) -> None:
        swap.commit(threads, held)
        replace_source(new.filename, new.source, is_armed=is_armed)

    if prepared.hold is None or not prepared.hold.place:
        if prepared.hold is not None:
            prepared.hold.end()
        _at_safe_point(lambda: swap.commit(threads))
        replace_source(new.filename, new.source, is_armed=is_armed)
    elif not prepared.hold.end(execute):
        swap.undo()
        return Pushed(error="the main thread was held for too long and continued with the old code")
    return Pushed(
        state=State.DONE,
        changed=tuple(swap.changed),
        kept=(*swap.kept, *([COMPILED] if has_compiled_code() else [])),
        is_same=swap.is_empty,
        file=os.path.realpath(new.filename),
        digest=FileDigest.of(new.source.encode(errors="surrogatepass")).sha256,
    )


def _at_safe_point(action: Callable[[], None]) -> None:
    """Execute an action in the main thread between two instructions, or here if that thread executes no Python code."""
    claim, done = threading.Lock(), threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        if claim.acquire(blocking=False):
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - it is raised below
                errors.append(error)
            done.set()

    if not _is_stopped() and call_in_main_thread(run):
        done.wait(SAFE_POINT_TIME)
    run()
    done.wait()
    if errors:
        raise errors[0]


def _is_stopped() -> bool:
    return threading.main_thread().ident in stopped_threads()
