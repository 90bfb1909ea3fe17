"""The debugger inside the job: the states of debugpy in this process, and what leads from one to the next.

debugpy listens on 127.0.0.1, on a port of its own choice. Nothing here ever connects to that port: a connection that is
opened and closed again ends debugpy's readiness permanently. Up to Python 3.11 a job with an armed debugger runs
several times slower, whether or not somebody is attached, so it is armed as late as possible and released as soon as
nobody is there.

This module knows when to start, stop and wait; `debugpy_start` knows how debugpy is started, `tracing` how its tracing
is switched off and on, `fork_guard` what a forked child inherits.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from types import FrameType, ModuleType
from typing import Any

from relay_agent.debuggee import debugpy_start, fork_guard, pydevd_patches, tracing
from relay_core.errors import ConfigurationError, RelayDebugError

__all__ = ["TRANSITIONS", "Debugger", "Event", "State", "debugger", "pydevd_debugger"]

# The states of a process
# -----------------------
# Two facts make most of them. Which debugger does pydevd, the part of debugpy inside the job, have? And is the job
# traced, which is what costs speed?
#
#                             tracing on      tracing switched off
#     debugpy listens         LISTENING       RELEASED
#     it dialled an editor    DIALLED         (it ends when its editor leaves)
#     no debugger             ABSENT          CLEARED
#
# ABSENT is where every process begins. It is in the left column because a debugger that ends leaves its trace functions
# on the threads: when an editor that was dialled hangs up, or debugpy's adapter is killed, the job stays slow until
# `release` has switched tracing off. A start from CLEARED has to switch it on again, which debugpy does not do by
# itself, hence RESTARTING beside STARTING.
#
# Two events are not ours, and nobody reports them: pydevd's debugger has gone, or there is one that this module has not
# started, because the job called `debugpy.listen` itself. So they are not stored when they happen: `Debugger.state`
# looks at pydevd and applies them to the stored state. FOREIGN is only ever seen, never stored; it ends with the job's
# debugger, and the stored state counts again.
#
# A forked child has the memory of its parent, but no thread of its debugger, and `fork_guard` takes its tracing away.


class State(Enum):
    """What this process's debugger is doing."""

    ABSENT = auto()
    """There is none. If there was one, its tracing is still on."""
    STARTING = auto()
    """debugpy is being started. An editor may have sent its breakpoints before all threads are traced."""
    LISTENING = auto()
    """debugpy listens on a port, for a debugger that is to come or is attached."""
    DIALLED = auto()
    """debugpy has connected to an editor that listens."""
    RELEASED = auto()
    """debugpy listens, and the job runs at full speed: breakpoints are not hit."""
    CLEARED = auto()
    """There is no debugger any more, and its tracing is off."""
    RESTARTING = auto()
    """As STARTING, from CLEARED."""
    FOREIGN = auto()
    """The job has started debugpy itself; it is left alone."""


class Event(Enum):
    """What changes the state."""

    START = auto()
    LISTENS = auto()
    CONNECTED = auto()
    FAILED = auto()
    """debugpy did not start."""
    RELEASE = auto()
    """Tracing was switched off."""
    RESUME = auto()
    """Tracing was switched on again."""
    FORKED = auto()
    """This is a child of the process that was in the state."""
    FOUND = auto()
    """pydevd has a debugger."""
    GONE = auto()
    """pydevd has none."""


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.ABSENT: {
        Event.START: State.STARTING,
        Event.RELEASE: State.CLEARED,
        Event.FOUND: State.FOREIGN,
        Event.FORKED: State.ABSENT,
    },
    State.STARTING: {
        Event.LISTENS: State.LISTENING,
        Event.CONNECTED: State.DIALLED,
        Event.FAILED: State.ABSENT,
        Event.FORKED: State.ABSENT,
    },
    State.LISTENING: {
        Event.RELEASE: State.RELEASED,
        Event.GONE: State.ABSENT,
        Event.FORKED: State.ABSENT,
    },
    State.DIALLED: {
        Event.GONE: State.ABSENT,
        Event.FORKED: State.ABSENT,
    },
    State.RELEASED: {
        Event.RESUME: State.LISTENING,
        Event.GONE: State.CLEARED,
        Event.FORKED: State.CLEARED,
    },
    State.CLEARED: {
        Event.START: State.RESTARTING,
        Event.FOUND: State.FOREIGN,
        Event.FORKED: State.CLEARED,
    },
    State.RESTARTING: {
        Event.LISTENS: State.LISTENING,
        Event.CONNECTED: State.DIALLED,
        Event.FAILED: State.CLEARED,
        Event.FORKED: State.CLEARED,
    },
    State.FOREIGN: {},
}

POLL_INTERVAL = 0.05
"""Seconds between two looks at debugpy, which has no callback for a debugger that attaches."""
GOODBYE_TIME = 5.0
"""Seconds for a debugger's departure to reach this process; its socket may be closed before debugpy has noticed."""


class Debugger:
    """debugpy in this process. Every method may be called from any thread, and repeatedly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while the state is being changed."""
        self._state = State.ABSENT
        self._port = 0
        """Where debugpy listens, while it is LISTENING or RELEASED."""

    def __repr__(self) -> str:
        return f"<Debugger {self.state.name.lower()}>"

    @property
    def state(self) -> State:
        """The present state: the stored one, corrected by what pydevd shows."""
        seen = Event.GONE if pydevd_debugger() is None else Event.FOUND
        return TRANSITIONS[self._state].get(seen, self._state)

    def is_armed(self) -> bool:
        """Whether debugpy traces this process, whoever started it."""
        return self.state in {State.LISTENING, State.DIALLED, State.FOREIGN}

    def is_attached(self) -> bool:
        """Whether a debugger is attached and has sent its breakpoints, and they will be hit."""
        pydevd = pydevd_debugger()
        return pydevd is not None and not self._is_starting and bool(pydevd.is_attached())

    @property
    def _is_starting(self) -> bool:
        return self._state in {State.STARTING, State.RESTARTING}

    def arm(self, *, follow_children: bool = False) -> int:
        """Make debugpy ready for a debugger, and return the port on 127.0.0.1 where it listens.

        The first call starts it, which takes a third of a second; after `release` its tracing is switched on again.
        Breakpoints are hit from then on, in functions that are running as well.

        Args:
            follow_children: Whether Python processes that this one starts stop for the debugger too. They then wait
                for it, without a limit, while one is attached that does not follow them. The first call decides.

        Raises:
            RelayDebugError: debugpy is missing, did not start, or is in use on an unknown port.
        """
        with self._lock:
            if self.state is State.DIALLED:
                self._wait_for_goodbye()
            state = self._settle()
            if state is State.FOREIGN:
                return _foreign_port()
            if state is State.RELEASED:
                tracing.start_tracing()
                self._move(Event.RESUME)
            elif state is not State.LISTENING:
                with self._starting(Event.LISTENS, follow_children=follow_children) as debugpy:
                    self._port = debugpy_start.listen(debugpy)
            return self._port

    def connect(self, port: int, *, follow_children: bool = False) -> None:
        """Connect to the debug adapter of an editor that listens on a port of 127.0.0.1.

        Breakpoints are hit from then on. When the connection ends, so does the debugger; `release` then restores full
        speed.

        Raises:
            RelayDebugError: debugpy is in use already, missing, or cannot connect.
        """
        with self._lock:
            if self.is_attached():
                raise RelayDebugError("a debugger is attached already")
            if self.state is State.DIALLED:
                self._wait_for_goodbye()
            if self._settle() not in {State.ABSENT, State.CLEARED}:
                raise RelayDebugError(
                    "debugpy listens in this process already",
                    hint='use a launch configuration with "connect" instead of "listen"',
                )
            with self._starting(Event.CONNECTED, follow_children=follow_children) as debugpy:
                debugpy_start.connect(debugpy, port)

    def release(self) -> None:
        """Restore full speed in all threads, once the debugger has left; `arm` makes this process debuggable again.

        A debugpy that the job has started is left alone.

        Raises:
            RelayDebugError: a debugger is attached, or debugpy does not allow it.
        """
        with self._lock:
            if self.state in {State.RELEASED, State.CLEARED, State.FOREIGN} or "pydevd" not in sys.modules:
                return
            self._wait_for_goodbye()
            self._settle()
            tracing.stop_tracing()
            self._move(Event.RELEASE)

    def break_at(self, frame: FrameType) -> None:
        """Stop in `frame`, on its next line, if a debugger is attached.

        `debugpy.breakpoint()` stops in its caller, which would be a function of this library.
        """
        if self.is_attached():
            pydevd: Any = sys.modules["pydevd"]
            pydevd.settrace(
                suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
            )

    def wait_for_attach(self, seconds: float, hopeless: threading.Event) -> bool:
        """Wait until a debugger is attached; stop after `seconds`, and at once when `hopeless` is set.

        This is debugpy's own `wait_for_client`, which looks at the same fact, with a limit.
        """
        deadline = time.monotonic() + seconds
        while not self.is_attached():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or hopeless.wait(min(POLL_INTERVAL, remaining)):
                return self.is_attached()
        return True

    def find_port(self) -> int | None:
        """Return the port where debugpy listens, whoever started it; None if it does not or the port is unknown."""
        if self.state in {State.LISTENING, State.RELEASED}:
            return self._port
        return debugpy_start.find_adapter_port()

    def _wait_for_goodbye(self) -> None:
        """Wait until this process has noticed that its debugger has left; one that was dialled ends then.

        Raises:
            RelayDebugError: it has not left.
        """
        deadline = time.monotonic() + GOODBYE_TIME
        while self.is_attached() or self.state is State.DIALLED:
            if time.monotonic() > deadline:
                raise RelayDebugError("a debugger is attached", hint="detach it first")
            time.sleep(POLL_INTERVAL)

    @contextlib.contextmanager
    def _starting(self, success: Event, *, follow_children: bool) -> Iterator[ModuleType]:
        """Yield debugpy, configured, to be started in the block.

        Raises:
            RelayDebugError: it is missing, or does not start.
        """
        fork_guard.install(then=self._forked)
        self._move(Event.START)
        try:
            yield debugpy_start.load(follow_children=follow_children)
            if self._state is State.RESTARTING:
                tracing.start_tracing()
            else:
                tracing.reach_threads()
            if follow_children:
                pydevd_patches.follow_into_children()
            self._move(success)
        except (ImportError, ValueError, RuntimeError, OSError) as error:
            raise RelayDebugError(f"debugpy did not start: {error}") from error
        finally:
            if self._is_starting:
                self._move(Event.FAILED)

    def _settle(self) -> State:
        """Store what pydevd shows, before acting on it, and return the present state."""
        state = self.state
        if state is not State.FOREIGN:
            self._state = state
        return state

    def _move(self, event: Event) -> None:
        self._state = TRANSITIONS[self._state][event]

    def _forked(self) -> None:
        """Forget, in a forked child, the debugger of its parent; what refers to this object stays valid."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self._move(Event.FORKED)


debugger = Debugger()
"""This process's."""


def pydevd_debugger() -> Any:
    """Return pydevd's debugger of this process; None if there is none, also after debugpy's adapter has died."""
    pydevd: Any = sys.modules.get("pydevd")  # another thread may be importing it at this moment
    return pydevd.get_global_debugger() if hasattr(pydevd, "get_global_debugger") else None


def _foreign_port() -> int:
    port = debugpy_start.find_adapter_port()
    if port is None:
        raise ConfigurationError(
            "debugpy is in use already, on a port that cannot be told", hint="leave debugpy.listen() to relay_agent"
        )
    return port
