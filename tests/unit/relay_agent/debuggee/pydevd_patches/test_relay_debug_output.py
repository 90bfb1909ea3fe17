"""Facts about output that waits to be sent: its order, its limit, and the receipts of debugpy's adapter."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from relay_agent.debuggee.pydevd_patches import relay_debug_output
from relay_agent.debuggee.pydevd_patches.relay_debug_output import (
    KEPT,
    PORTION,
    OutputQueue,
    Text,
)

RECEIPT = {"type": "request", "command": relay_debug_output.RECEIPT, "arguments": {}}


class Factory:
    """Makes messages as pydevd's factory does."""

    @staticmethod
    def make_console_message(text: str) -> "Message":
        return Message("console", text)


class Message:
    def __init__(self, kind: Any, content: Any) -> None:
        self.content = (kind, content)

    def send(self, connection: list[Any]) -> None:
        connection.append(self.content)


class Writer:
    """The queue of pydevd's writer thread, and what was sent from it."""

    def __init__(self, *, receipts: bool) -> None:
        OutputQueue.expects_receipts = receipts
        self.queued: deque[OutputQueue] = deque()
        self.output = OutputQueue(lambda queue, _block: self.queued.append(queue))
        self.sent: list[Any] = []

    def print(self, text: str, stream: int = 1) -> None:
        self.output.add(Text(Factory, lambda _factory, text, stream: Message(stream, text), text, stream))

    def write(self) -> list[Any]:
        """Send what is in the queue, and return what was sent since the last call."""
        while self.queued:
            self.queued.popleft().send(self.sent)
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture(autouse=True)
def messages_without_pydevd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_debug_output, "INTERVAL", 0.0)
    monkeypatch.setattr(relay_debug_output, "_receipt_request", lambda: Message("receipt", RECEIPT))


def test_texts_are_joined():
    """Texts that wait become one message, unless they were printed to different streams."""
    writer = Writer(receipts=True)
    for text, stream in [("a", 1), ("\n", 1), ("b\n", 2), ("c\n", 1)]:
        writer.print(text, stream)
    assert [(1, "a\n"), (2, "b\n"), (1, "c\n")] == writer.write()


def test_later_output_waits_for_the_receipt():
    """After a portion, nothing is sent until the adapter has confirmed it."""
    writer = Writer(receipts=True)
    long = "x" * PORTION
    writer.print(long)
    writer.print("later\n")
    assert [(1, long), ("receipt", RECEIPT)] == writer.write()
    assert [] == writer.write()
    writer.output.receipt_received(is_success=True)
    assert [(1, "later\n")] == writer.write()


@pytest.mark.parametrize("expected", [True, False])
def test_adapters_without_receipts(expected: bool):
    """An adapter that refuses a receipt is not asked again, and one without the guard never."""
    writer = Writer(receipts=expected)
    long = "x" * PORTION
    writer.print(long)
    if expected:
        assert [(1, long), ("receipt", RECEIPT)] == writer.write()
        writer.output.receipt_received(is_success=False)
    for _ in range(3):
        writer.print(long)
    assert [(1, long)] * (3 if expected else 4) == writer.write()


def test_the_oldest_output_is_left_out():
    """What exceeds the limit is counted, and the latest lines are sent."""
    writer = Writer(receipts=True)
    numbers = range(KEPT // 50)
    for number in numbers:
        writer.print(f"{number}\n")
    writer.output.end()
    (kind, note), (_, text) = writer.write()
    assert "console" == kind
    kept = text.splitlines()
    assert [str(number) for number in numbers[-len(kept) :]] == kept
    assert note.startswith(f"[relay-agent: {len(numbers) - len(kept):,} lines left out;")


def test_output_at_the_end():
    """At the end of the connection, everything that waits is sent, without a receipt."""
    writer = Writer(receipts=True)
    long = "x" * PORTION
    writer.print(long)
    writer.write()
    writer.print("the last words\n")
    writer.output.end()
    assert [(1, "the last words\n")] == writer.write()


def test_a_signal_handler_raises_an_exception():
    """If it interrupts a thread that prints, later output is sent nevertheless."""
    writer = Writer(receipts=True)

    def interrupted(_queue: Any, _block: bool) -> None:
        raise TimeoutError

    put, writer.output._put = writer.output._put, interrupted
    with pytest.raises(TimeoutError):
        writer.print("first\n")
    writer.output._put = put
    writer.print("second\n")
    assert [(1, "first\nsecond\n")] == writer.write()


def test_a_thread_that_prints_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """The end waits for what was printed before it, and not for a thread that prints without pause."""
    monkeypatch.setattr(relay_debug_output, "DRAIN_LIMIT", float("inf"))
    writer = Writer(receipts=True)
    writer.print("before\n")
    sent: list[Any] = []

    def write_while_another_prints() -> bool:
        sent.extend(writer.write())
        writer.print("later\n")
        return True

    writer.output.drain(SimpleNamespace(is_alive=write_while_another_prints))
    assert (1, "before\n") == sent[0]
