"""State machine of debugpy in this process: absent, listening, connected to an editor, or released.

debugpy listens on 127.0.0.1, on a free port. This module never connects to that port: if a connection is opened and
closed without a session, debugpy accepts no further debuggers. Up to Python 3.11, a job with an armed debugger runs
several times slower, even if no debugger is attached. So debugpy is armed as late as possible and released as soon as
the debugger has detached.

This module decides when to start, stop and wait. `debugpy_start` starts debugpy, `tracing` switches its tracing off and
on, and `detaching` removes what a forked child must not inherit.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from types import FrameType, ModuleType
from typing import Any, Protocol

from relay_agent.debuggee import debugpy_start, detaching, gevent_support, stopping, tracing
from relay_agent.debuggee.pydevd_patches import child_processes, data_breakpoints, unreached_report
from relay_agent.debugpy_internals.table import CHILDREN, FORKING, STATE, UNCAUGHT
from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.stderr import failed_import, write_line
from relay_core.errors import ConfigurationError, RelayDebugError

# The states of a process
#
# Two facts define most states: the connection of pydevd, the part of debugpy inside the job, and whether the job is
# traced. Tracing is what makes the job slow.
#
#                             tracing on      tracing switched off
#     debugpy listens         LISTENING       RELEASED
#     it dialled an editor    DIALLED         (it ends when its editor disconnects)
#     no debugger             ABSENT          CLEARED
#
# Every process starts in ABSENT. That state is in the left column because a debugger that ends leaves its trace
# functions on the threads: when a dialled editor disconnects, or debugpy's adapter is killed, the job stays slow until
# `release` has switched tracing off. A start from CLEARED must switch tracing on again, which debugpy does not do. So
# the state changes only when debugpy has started; until then, `Debugger._is_starting` is set.
#
# Two events happen outside this module and are not reported to it: pydevd's debugger ends, or the job starts one by
# calling `debugpy.listen`. They cannot be stored when they happen, so `Debugger.state` reads pydevd's state and applies
# them to the stored state. FOREIGN is only derived, never stored; when the job's own debugger ends, the stored state is
# valid again.
#
# A forked child has its parent's memory, but none of the debugger's threads, and `detaching` removes its tracing.


class State(Enum):
    """State of this process's debugger."""

    ABSENT = auto()
    """No debugger. If there was one, its tracing is still on."""
    LISTENING = auto()
    """debugpy is listening on a port; a debugger may or may not be attached."""
    DIALLED = auto()
    """debugpy has connected to a listening editor."""
    RELEASED = auto()
    """debugpy is listening, and the job runs at full speed: breakpoints are not hit."""
    CLEARED = auto()
    """The debugger has ended, and its tracing is off."""
    FOREIGN = auto()
    """The job has started debugpy itself; this module does not touch it."""


class Event(Enum):
    """Cause of a state change."""

    LISTENS = auto()
    CONNECTED = auto()
    RELEASE = auto()
    """Tracing was switched off."""
    RESUME = auto()
    """Tracing was switched on again."""
    FORKED = auto()
    """This process is a forked child of the process whose state was stored."""
    FOUND = auto()
    """pydevd has a debugger."""
    GONE = auto()
    """pydevd has no debugger."""


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.ABSENT, Event.LISTENS): State.LISTENING,
    (State.ABSENT, Event.CONNECTED): State.DIALLED,
    (State.ABSENT, Event.RELEASE): State.CLEARED,
    (State.ABSENT, Event.FOUND): State.FOREIGN,
    (State.ABSENT, Event.FORKED): State.ABSENT,
    (State.LISTENING, Event.RELEASE): State.RELEASED,
    (State.LISTENING, Event.GONE): State.ABSENT,
    (State.LISTENING, Event.FORKED): State.ABSENT,
    (State.DIALLED, Event.GONE): State.ABSENT,
    (State.DIALLED, Event.FORKED): State.ABSENT,
    (State.RELEASED, Event.RESUME): State.LISTENING,
    (State.RELEASED, Event.GONE): State.CLEARED,
    (State.RELEASED, Event.FORKED): State.CLEARED,
    (State.CLEARED, Event.LISTENS): State.LISTENING,
    (State.CLEARED, Event.CONNECTED): State.DIALLED,
    (State.CLEARED, Event.FOUND): State.FOREIGN,
    (State.CLEARED, Event.FORKED): State.CLEARED,
}
"""The state after each event that a state allows; FOREIGN is left alone."""

POLL_INTERVAL = 0.05
"""Seconds between checks of debugpy, which has no callback for an attaching debugger."""
DETACH_TIMEOUT = 5.0
"""Timeout in seconds for debugpy to process a disconnect; the debugger's socket may be closed earlier."""


class Waitable(Protocol):
    """A condition that another thread fulfils, such as a `threading.Event`."""

    def wait(self, timeout: float, /) -> bool:
        """Wait up to `timeout` seconds for the condition, and return whether it is fulfilled."""


class Debugger:
    """debugpy in this process. Every method may be called from any thread and any number of times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while the state is being changed."""
        self._state = State.ABSENT
        self._is_starting = False
        """Whether debugpy is being started. An editor may have sent its breakpoints before all threads are traced."""
        self._port = 0
        """The port on which debugpy is listening in LISTENING and RELEASED."""
        self.shows_values = True
        """Whether to change how values are shown; read when debugpy starts."""

    @property
    def state(self) -> State:
        """The current state: the stored state, corrected by pydevd's own state if that can be read."""
        if STATE.is_off or self._is_starting:
            return self._state
        observed = Event.GONE if pydevd_debugger() is None else Event.FOUND
        return TRANSITIONS.get((self._state, observed), self._state)

    def is_armed(self) -> bool:
        """Whether debugpy is tracing this process, regardless of whether this module or the job started debugpy."""
        return self.state in {State.LISTENING, State.DIALLED, State.FOREIGN}

    def is_attached(self) -> bool:
        """Whether a debugger is attached and has sent its breakpoints, which will be hit."""
        if self._is_starting or "pydevd" not in sys.modules or "debugpy" not in sys.modules:
            return False
        import debugpy  # noqa: PLC0415 - as above

        return bool(debugpy.is_client_connected())

    def arm(self, *, follow_children: bool = False) -> int:
        """Make debugpy ready for a debugger, and return the port on 127.0.0.1 on which it is listening.

        The first call starts debugpy, which takes 0.2 s; a call after `release` switches tracing on again. From then
        on, breakpoints are hit, including those in functions that are already running.

        Args:
            follow_children: Whether Python processes that this one starts can be debugged too. Each child then waits,
                without limit, for its own debug session while a debugger is attached here. Only the first call
                has an effect.

        Raises:
            RelayDebugError: debugpy is missing, did not start, or is in use on an unknown port.
        """
        with self._lock:
            if self.state is State.DIALLED:
                self._wait_for_detach()
            state = self._store_state()
            if state is State.FOREIGN:
                return self.known_port()
            if state is State.RELEASED:
                tracing.start_tracing()
                self._move(Event.RESUME)
            elif state is not State.LISTENING:
                with self._starting(Event.LISTENS, follow_children=follow_children) as debugpy:
                    self._port = debugpy_start.listen(debugpy)
            return self._port

    def connect(self, port: int, *, follow_children: bool = False) -> None:
        """Connect to the debug adapter of an editor that is listening on a port of 127.0.0.1.

        Breakpoints are hit from then on. When the connection ends, so does the debugger; `release` then restores full
        speed.

        Raises:
            RelayDebugError: debugpy is already in use, is missing, or cannot connect.
        """
        with self._lock:
            if self.is_attached():
                raise RelayDebugError("a debugger is already attached")
            if self.state is State.DIALLED:
                self._wait_for_detach()
            if self._store_state() not in {State.ABSENT, State.CLEARED}:
                raise RelayDebugError(
                    "debugpy is already listening in this process",
                    hint='use a launch configuration with "connect" instead of "listen"',
                )
            with self._starting(Event.CONNECTED, follow_children=follow_children) as debugpy:
                debugpy_start.connect(debugpy, port)

    def release(self) -> None:
        """Restore full speed in all threads after the debugger has detached; `arm` makes the process debuggable again.

        Has no effect on a debugpy that the job has started, or with a version of debugpy that cannot be released.

        Raises:
            RelayDebugError: a debugger is attached.
        """
        with self._lock:
            if self.state in {State.RELEASED, State.CLEARED, State.FOREIGN} or "pydevd" not in sys.modules:
                if self.state is not State.FOREIGN:
                    data_breakpoints.forget()
                return
            try:
                self._wait_for_detach()
            except RelayDebugError:
                if not self._end_abandoned():
                    raise
            data_breakpoints.forget()
            self._stop_tracing()

    def _end_abandoned(self) -> bool:
        """Shut down a debugger that has not noticed that its editor disconnected; return whether there was one."""
        is_abandoned = self.state is State.LISTENING and detaching.is_abandoned(self._port)
        if not is_abandoned and self.state is not State.DIALLED:  # the agent has closed its connection to an editor
            return False
        if not detaching.end_debugger(pydevd_debugger()):
            return False
        write_line("debugpy no longer responds; its session was ended, and a debugger can attach again")
        return True

    def end(self, reason: str) -> None:
        """End the debugger, even in a debug session; the editor and the job's log show the reason.

        Its threads have exited when this returns, or have not responded for `detaching.END_TIMEOUT`: a library that is
        about to replace functions of `threading` does not do so while they run.
        """
        with self._lock:
            found = pydevd_debugger()
            if found is None:
                return
            unreached_report.show(f"the debugger has ended: {reason}")
            if detaching.end_debugger(found, threads=True):
                self._stop_tracing()

    def break_at(self, frame: FrameType, *, is_before_line: bool = False) -> None:
        """Stop in a frame as `stopping.stop_in` does, if a debugger is attached."""
        if self.is_attached():
            stopping.stop_in(frame, is_before_line=is_before_line)

    def wait_for_attach(self, seconds: float, hopeless: Waitable) -> bool:
        """Wait for a debugger, until `seconds` have passed or `hopeless` is set, and return whether one is attached.

        debugpy's `wait_for_client` checks the same condition, but without a time limit.
        """
        deadline = time.monotonic() + seconds
        while not self.is_attached():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or hopeless.wait(min(POLL_INTERVAL, remaining)):
                return self.is_attached()
        return True

    def known_port(self) -> int:
        """Return the port on which debugpy is listening, whether this module or the job started it.

        Raises:
            ConfigurationError: the job has started debugpy on a port that cannot be determined.
        """
        is_own = self.state in {State.LISTENING, State.RELEASED}
        port = self._port if is_own else debugpy_start.find_adapter_port()
        if port is None:
            hint = "remove the job's own call to debugpy.listen()"
            raise ConfigurationError("debugpy is already in use, on an unknown port", hint=hint)
        return port

    def _wait_for_detach(self) -> None:
        """Wait until debugpy has processed the debugger's detachment; a connection to an editor is then closed.

        Raises:
            RelayDebugError: the debugger is still attached.
        """
        deadline = time.monotonic() + DETACH_TIMEOUT
        while self.is_attached() or self.state is State.DIALLED:
            if time.monotonic() > deadline:
                raise RelayDebugError("a debugger is attached", hint="detach it first")
            time.sleep(POLL_INTERVAL)

    @contextlib.contextmanager
    def _starting(self, success: Event, *, follow_children: bool) -> Iterator[ModuleType]:
        """Yield the configured debugpy module; the block starts it, and all threads are traced when the block exits.

        Raises:
            RelayDebugError: debugpy is missing, or does not start.
        """
        detaching.install(then=self._forked)
        gevent_support.watch_patches(before_patch=self.end)
        self._is_starting = True
        tracing.log_replaced_tracer()
        try:
            debugpy = debugpy_start.load(follow_children=follow_children, values=self.shows_values)
            FORKING.is_available()  # looked up here rather than in each child
            UNCAUGHT.is_available()  # not in the program's thread, where a debugger may stop meanwhile
            yield debugpy
            if self._state is State.CLEARED:
                tracing.start_tracing()
            else:
                tracing.reach_threads()
            if CHILDREN.is_available():
                port = self._port if success is Event.LISTENS else None
                if follow_children:
                    child_processes.follow_into_children(port)
                else:
                    child_processes.follow_on_demand(port, self.is_attached)
            self._move(success)
        except RelayDebugError:
            raise
        except Exception as error:
            missing = debugpy_missing() if getattr(error, "name", "") == "debugpy" else None
            raise (
                failed_import(error)
                or missing
                or RelayDebugError(f"debugpy did not start: {' '.join(str(error).split())}")
            ) from error
        finally:
            self._is_starting = False

    def _store_state(self) -> State:
        """Return the current state, and store it unless it is FOREIGN."""
        state = self.state
        if state is not State.FOREIGN:
            self._state = state
        return state

    def _stop_tracing(self) -> None:
        self._store_state()
        if tracing.stop_tracing():
            self._move(Event.RELEASE)

    def _move(self, event: Event) -> None:
        self._state = TRANSITIONS[self._state, event]

    def _forked(self) -> None:
        """Reset the state in a forked child, in place: other modules hold references to this object."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old lock
        self._is_starting = False
        self._move(Event.FORKED)


debugger = Debugger()
"""The debugger of this process."""


def pydevd_debugger() -> Any:
    """Return pydevd's debugger of this process; None before debugpy starts and after its adapter has exited."""
    pydevd: Any = sys.modules.get("pydevd")  # another thread may be importing it at this moment
    return pydevd.get_global_debugger() if hasattr(pydevd, "get_global_debugger") else None


def debugpy_missing() -> RelayDebugError:
    """Return the error if the job cannot import debugpy; a new one, because one that is raised keeps frames alive."""
    return RelayDebugError("debugpy is not installed in the job's Python; install it there: pip install debugpy")
