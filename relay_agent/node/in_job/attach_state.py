"""State machine of the way to a debugger: whether one can attach to this process through its node's agent.

    CONNECTING --> REGISTERED --> UNREACHABLE --> LISTENING         HOPELESS
                        |                             ^             from each state,
                        +-----------------------------+             and final

If an agent is killed, its successor registers the process again. The state does not change then: a successor usually
listens within a second. LISTENING does not end with an outage of the relay either, because outages are usually brief.

There is one state, and `registered`, `decided`, `listening`, `futile` and `hopeless` are questions about it. They used
to be events that were set one by one, whose combinations had to be kept consistent in several places; a state that is
not in the table can no longer be expressed. State and reason change together, as one tuple, because a signal handler
may read between two assignments.

LISTENING cannot return to REGISTERED although a successor that has registered the process is not listening yet. A job
that waits for a debugger would otherwise report for a second that none can attach. What is ugly: waiting is polling.
A condition variable needs a lock, and a signal handler that waits may have interrupted the thread that holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto

from relay_agent.job.gevent_originals import threading, time
from relay_core.errors import RelayDebugError

POLL_INTERVAL = 0.02
"""Seconds between two checks of a condition that another thread fulfils. A lock would be unsafe: a signal handler that
waits may have interrupted the thread that holds it."""


class State(Enum):
    """Whether a debugger can attach."""

    CONNECTING = auto()
    """Not yet: no agent has registered this process so far."""
    REGISTERED = auto()
    """Not yet: the relay has not accepted the agent so far."""
    UNREACHABLE = auto()
    """Not now: the agent has not reached the relay for a while, and keeps trying. In a local run: never."""
    LISTENING = auto()
    """Yes: the relay has accepted the agent."""
    HOPELESS = auto()
    """No longer, or never: the process has been refused, or no agent can listen."""


TRANSITIONS: Mapping[State, Collection[State]] = {
    State.CONNECTING: {State.REGISTERED, State.UNREACHABLE, State.LISTENING, State.HOPELESS},
    State.REGISTERED: {State.UNREACHABLE, State.LISTENING, State.HOPELESS},
    State.UNREACHABLE: {State.UNREACHABLE, State.LISTENING, State.HOPELESS},
    State.LISTENING: {State.HOPELESS},
    State.HOPELESS: set(),
}
"""The states that can follow each state. Reports of other states are ignored: those of successors."""


class AttachState:
    """The state, and the reason why no debugger can attach. It is read in all threads and in signal handlers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while the state is being changed; no signal handler changes it."""
        self._current: tuple[State, RelayDebugError | None] = (State.CONNECTING, None)
        self.registered = Reached(self, State.REGISTERED, State.UNREACHABLE, State.LISTENING, State.HOPELESS)
        """An agent has responded."""
        self.decided = Reached(self, State.UNREACHABLE, State.LISTENING, State.HOPELESS)
        """It is known whether a debugger can attach now."""
        self.listening = Reached(self, State.LISTENING)
        self.futile = Reached(self, State.UNREACHABLE, State.HOPELESS)
        """Waiting for a debugger is useless."""
        self.hopeless = Reached(self, State.HOPELESS)

    @property
    def state(self) -> State:
        """The current state."""
        return self._current[0]

    @property
    def obstacle(self) -> RelayDebugError | None:
        """The reason for UNREACHABLE or HOPELESS; None in other states."""
        return self._current[1]

    def report(self, state: State, obstacle: RelayDebugError | None = None) -> None:
        """Change the state, if it can follow the current one."""
        with self._lock:
            if state in TRANSITIONS[self.state]:
                self._current = (state, obstacle)


class Reached:
    """Whether the state is one of several; with the methods of `threading.Event`."""

    def __init__(self, owner: AttachState, *states: State) -> None:
        self._owner = owner
        self._states = states

    def is_set(self) -> bool:
        """Whether the state is one of these now."""
        return self._owner.state in self._states

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for one of the states, and return whether it is reached."""
        deadline = time.monotonic() + seconds
        while not self.is_set():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            time.sleep(min(POLL_INTERVAL, remaining))
        return True
