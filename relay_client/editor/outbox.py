"""Holds messages from relay-client to an editor until they can be sent between two messages from the debugger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relay_client.editor.messages import CONSOLE, make_event, make_failure, make_output, make_success
from relay_client.editor.notices import Notice
from relay_core.dap.messages import Message, Request
from relay_core.layers.layer import Output, ToLocal

__all__ = ["Outbox"]


class Outbox:
    """The queue of one editor; its messages repeat the last `seq` of the debugger, so that `seq` never decreases."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._last_seq = 1

    def __bool__(self) -> bool:
        return bool(self._messages)

    def __repr__(self) -> str:
        return f"<Outbox {len(self._messages)}>"

    def note(self, seq: int) -> None:
        """Record the `seq` of a message from the debugger to the editor."""
        self._last_seq = max(self._last_seq, seq)

    def show(self, text: str, category: str = CONSOLE) -> None:
        """Add a line of output."""
        self._messages.append(make_output(text, category, self._last_seq))

    def show_all(self, notices: Iterable[Notice]) -> None:
        """Add lines of output."""
        for text, category in notices:
            self.show(text, category)

    def report(self, name: str, body: Mapping[str, object]) -> None:
        """Add an event."""
        self._messages.append(make_event(name, body, self._last_seq))

    def succeed(self, request: Request, body: Mapping[str, object] | None = None) -> None:
        """Add the response to a request that has succeeded."""
        self._messages.append(make_success(request, self._last_seq, body))

    def fail(self, request: Request, reason: str) -> None:
        """Add the response to a request that has failed."""
        self._messages.append(make_failure(request, reason, self._last_seq))

    def take(self) -> list[Output]:
        """Return all messages, and remove them."""
        messages, self._messages = self._messages, []
        return [ToLocal.of(message) for message in messages]
