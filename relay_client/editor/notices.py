"""Decides when to inform an editor that its connection is waiting or interrupted, and holds messages until then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from relay_client.editor.messages import CONSOLE, IMPORTANT, IN_C_CODE, EditorMessages, JobView, waiting_text
from relay_client.ui.text import duration
from relay_core.dap.messages import Message
from relay_core.layers.layer import Output, ToLocal

FIRST_LINE = 1.0
"""Seconds of waiting before the first line; an agent that is already running answers sooner."""
SECOND_LINE = 10.0
"""Seconds of waiting before the second line; the waiting time doubles before each further line."""
MAX_PAUSE = 600.0
"""Maximum seconds between two lines."""
INTERRUPTION = 1.0
"""Seconds without a connection before a line is shown; replacing a transport takes less time."""

PAUSE_TIMEOUT = 2.0
"""Seconds to wait for a pause; Python code stops within milliseconds, and a tunnel adds its round trips."""

Notice = tuple[str, str]
"""Text and category of an output event."""


class Notices(ABC):
    """Lines that depend on the time."""

    next_deadline: float | None = None
    """When the next line is due."""

    def due(self, view: JobView, now: float) -> list[Notice]:
        """Return the line that is due now, if any."""
        return [] if self.next_deadline is None or now < self.next_deadline else self._lines(view, now)

    @abstractmethod
    def _lines(self, view: JobView, now: float) -> list[Notice]:
        """Return the line, and set the next deadline."""


class WaitingNotices(Notices):
    """The lines for a waiting connection: at increasing intervals, and one for each new reason.

    Args:
        now: When the connection was accepted.
    """

    next_deadline: float

    def __init__(self, now: float) -> None:
        self._accepted_at = now
        self._reason = ""
        self._is_notified = False
        self.next_deadline = now + FIRST_LINE

    def set_reason(self, reason: str, now: float) -> None:
        """Record why the debugger has not answered yet."""
        if reason != self._reason:
            self._reason = reason
            self.next_deadline = min(self.next_deadline, max(now, self._accepted_at + FIRST_LINE))

    def _lines(self, view: JobView, now: float) -> list[Notice]:
        waited = now - self._accepted_at
        self.next_deadline = now + min(max(SECOND_LINE - waited, waited), MAX_PAUSE)
        # VS Code opens the debug console only once a session has begun, so a long wait is also shown as a notification,
        # once.
        category = IMPORTANT if not self._is_notified and waited >= SECOND_LINE else CONSOLE
        self._is_notified |= category == IMPORTANT
        return [(waiting_text(view, view.away_reason or self._reason, waited), category)]


class InterruptionNotices(Notices):
    """One line when the tunnel has lost its connection, and one when the connection has been restored."""

    _since: float | None = None

    def update(self, view: JobView, now: float) -> list[Notice]:
        """Handle a change in what is known about the job; return the second line if it is due."""
        since, is_shown = self._since, self.next_deadline is None
        if view.away_reason:
            if since is None:
                self._since, self.next_deadline = now, now + INTERRUPTION
            return []
        self._since = self.next_deadline = None
        if since is None or not is_shown:
            return []
        return [(f"the connection to {view.name} was restored after {duration(now - since)}", CONSOLE)]

    def _lines(self, view: JobView, now: float) -> list[Notice]:  # noqa: ARG002 - as in Notices
        self.next_deadline = None
        text = (
            f"the connection to {view.name} is interrupted: {view.away_reason}; it will be restored automatically, and "
            "steps that you request in the meantime will run then"
        )
        return [(text, CONSOLE)]


class PeerTimeoutNotices(Notices):
    """How long the other ranks wait for a stopped one: at the stop, when a quarter is left, and when it has passed."""

    _ends_at = 0.0
    _is_stopped = False

    def update(self, view: JobView, now: float) -> list[Notice]:
        """Handle a change in what is known about the job; return the first line if the target has stopped."""
        was_stopped, self._is_stopped = self._is_stopped, view.is_stopped and not view.is_alone
        if not self._is_stopped or view.peer_timeout is None:
            self.next_deadline = None
        elif not was_stopped:
            self.next_deadline, self._ends_at = now + 0.75 * view.peer_timeout, now + view.peer_timeout
            return [(_left_text(view, f"at most {duration(view.peer_timeout)}"), CONSOLE)]
        return []

    def _lines(self, view: JobView, now: float) -> list[Notice]:  # noqa: ARG002 - as in Notices
        seconds = view.peer_timeout or 0.0
        if self.next_deadline != self._ends_at:
            self.next_deadline = self._ends_at
            return [(_left_text(view, f"{duration(seconds / 4)} more"), IMPORTANT)]
        self.next_deadline = None
        waited = f"the other ranks have waited {duration(seconds)} for {view.name}"
        return [(f"{waited}: their collective operations may have timed out", IMPORTANT)]


def _left_text(view: JobView, left: str) -> str:
    return f"the other ranks wait {left} for {view.name} (timeout of the process group); then the job may fail"


class PauseNotices(Notices):
    """One line for each pause that has not taken effect after `PAUSE_TIMEOUT`."""

    def requested(self, now: float) -> None:
        """Begin to wait for the stop."""
        self.next_deadline = now + PAUSE_TIMEOUT

    def ended(self) -> None:
        """Show nothing, because the target has stopped."""
        self.next_deadline = None

    def _lines(self, view: JobView, now: float) -> list[Notice]:  # noqa: ARG002 - as in Notices
        self.next_deadline = None  # if the tunnel is interrupted, the request may not have arrived
        return [] if view.away_reason else [(f"{view.name} {IN_C_CODE}", CONSOLE)]


# Holds messages from relay-client to an editor until they can be sent between two messages from the debugger.


class Outbox(EditorMessages):
    """The queue of one editor; its messages repeat the last `seq` of the debugger, so that `seq` never decreases."""

    def __init__(self) -> None:
        self._messages: list[Output] = []
        self.last_seq = 1
        """The highest `seq` of the messages that the editor has received from the debugger."""

    def __bool__(self) -> bool:
        return bool(self._messages)

    def note(self, seq: int) -> None:
        """Record the `seq` of a message from the debugger to the editor."""
        self.last_seq = max(self.last_seq, seq)

    def show_all(self, notices: Iterable[Notice]) -> None:
        """Add lines of output."""
        for text, category in notices:
            self.show(text, category)

    def take(self) -> list[Output]:
        """Return all messages, and remove them."""
        messages, self._messages = self._messages, []
        return messages

    def send(self, message: Message) -> None:
        """Send a message."""
        message["seq"] = self.last_seq
        self._messages.append(ToLocal.of(message))
