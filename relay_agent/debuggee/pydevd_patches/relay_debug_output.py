"""Patch that limits how much printed output is on its way to an editor, so that output does not delay other messages.

With `redirectOutput`, pydevd queues a message for each text that the job prints, and for each logpoint that is hit. The
queue has no limit, and neither has the one in debugpy's adapter. If the job prints faster than pydevd sends, which is a
few dozen messages per second while other threads hold the GIL, the job's memory grows, and every response waits behind
all the output.

With this patch, output waits in an `OutputQueue` of limited size, which joins consecutive texts. If the queue is full,
its oldest texts are left out, and a message in their place states how many. After `PORTION`, further output waits until
debugpy's adapter has passed that on. The adapter confirms this by responding to a request, which `adapter_guard`
lets it do. An adapter without the guard rejects the request; then the output is limited by time only.

The job's threads execute the code in this file, and must not stop in it, for example at a `pause`: another thread may
need the lock. So this file has an unusual name, and is in pydevd's table of files that are not traced. In that code, no
Python function of another file is called unless it is in pydevd's table as well.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay_agent.debuggee.pydevd_patches.child_processes import PORT_VARIABLE, patch_class
from relay_agent.debugpy_internals.table import FLOODS
from relay_agent.job.gevent_originals import json, threading, time

KEPT = 1024 * 1024
"""Maximum size of the waiting output, in characters; `OVERHEAD` is added for each text, and a long text counts half."""
PORTION = 32 * 1024
"""Size of the output after which further output waits, measured likewise."""
OVERHEAD = 100
"""Size of an empty text in memory, and of an empty message to the adapter, in bytes."""
INTERVAL = 0.2
"""Minimum time in seconds between two portions: many ranks may share one connection to the editor."""
POLL_INTERVAL = 0.02
"""Maximum delay in seconds of another message while output waits for the interval to end."""
DRAIN_LIMIT = 3.0
"""Maximum time in seconds that the end of a debugger, for example at the job's exit, waits for the last output."""
RECEIPT = "relayAgentReceipt"
"""Command of the request that the adapter answers when it has passed on all output before it; as in `adapter_guard`."""
QUEUE = "_relay_agent_output"
"""The attribute of pydevd's writer thread that holds its `OutputQueue`."""


def install(*, is_child: bool) -> None:
    """Patch pydevd in this process and its forked children, after all other patches of the same functions.

    Args:
        is_child: Whether the debugger has followed a parent into this process.
    """
    if is_child:
        OutputQueue.expects_receipts = PORT_VARIABLE in os.environ
    from _pydevd_bundle import pydevd_dont_trace_files  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_net_command_factory_json import NetCommandFactoryJson  # noqa: PLC0415

    pydevd_dont_trace_files.DONT_TRACE[Path(__file__).name] = pydevd_dont_trace_files.PYDEV_FILE
    make = NetCommandFactoryJson.make_io_message

    def make_text(factory: Any, text: str, stream: Any) -> Any:
        """Replacement for `make_io_message`, called in the job's threads."""
        return make(factory, text, stream) if FLOODS.is_off else Text(factory, make, text, stream)

    _patch_writer()
    _patch_reader()
    patch_class("PyDB", _patch_end)
    NetCommandFactoryJson.make_io_message = make_text


def _patch_writer() -> None:
    from _pydevd_bundle.pydevd_comm import CMD_EXIT, WriterThread  # noqa: PLC0415 - in debug runs only

    add = WriterThread.add_command

    def add_command(writer: Any, command: Any) -> None:
        """Replacement for `add_command`, which queues a message for the adapter; called in any thread."""
        queue = None if FLOODS.is_off else writer.__dict__.get(QUEUE)
        if queue is not None and type(command) is Text:
            queue.add(command)
            return
        if queue is not None and command.id == CMD_EXIT:
            queue.end()
        add(writer, command)

    WriterThread.add_command = add_command


def _patch_end(debugger_class: Any) -> None:
    dispose = debugger_class.dispose_and_kill_all_pydevd_threads
    debugger_class.dispose_and_kill_all_pydevd_threads = functools.partialmethod(_drain_and_dispose, dispose)


def _drain_and_dispose(debugger: Any, dispose: Callable[..., None], *arguments: Any, **named: Any) -> None:
    """End the debugger when its last output was sent."""
    if not FLOODS.is_off:
        with FLOODS.guarded():
            writer = debugger.writer
            queue = writer.__dict__.get(QUEUE) if writer is not None else None
            if queue is not None and threading.get_ident() != writer.ident:
                queue.drain(writer)
    dispose(debugger, *arguments, **named)


def _patch_reader() -> None:
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415 - as above

    process = PyDevJsonCommandProcessor.process_net_command_json

    def process_command(processor: Any, debugger: Any, contents: bytes | str, *arguments: Any, **named: Any) -> None:
        """Replacement for `process_net_command_json`, which handles messages from the adapter in pydevd's thread."""
        if not FLOODS.is_off:
            with FLOODS.guarded():
                attributes = debugger.writer.__dict__
                if QUEUE not in attributes:
                    attributes[QUEUE] = OutputQueue(debugger.writer._cmd_queue.put)  # noqa: SLF001 - nothing public
                if (answer := _receipt(contents)) is not None:
                    attributes[QUEUE].receipt_received(is_success=answer.get("success") is True)
                    return
        process(processor, debugger, contents, *arguments, **named)

    PyDevJsonCommandProcessor.process_net_command_json = process_command


def _receipt(contents: bytes | str) -> dict[str, Any] | None:
    """Return a message from the adapter if it answers a request for a receipt."""
    if not isinstance(contents, bytes) or RECEIPT.encode() not in contents:
        return None
    message: dict[str, Any] = json.loads(contents)
    return message if message.get("type") == "response" and message.get("command") == RECEIPT else None


def _receipt_request() -> Any:
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only

    return NetCommand(0, 0, {"type": "request", "command": RECEIPT, "arguments": {}}, is_json=True)


class Text:
    """A text that the job has printed; takes the place of pydevd's message.

    Args:
        factory: pydevd's factory of messages.
        make: The factory's own `make_io_message`.
        text: The text.
        stream: pydevd's number of the stream to which it was printed.
    """

    __slots__ = ("factory", "make", "size", "stream", "text")
    id = 0
    as_dict = None
    """Required by pydevd's writer, as `id`."""

    def __init__(self, factory: Any, make: Callable[[Any, str, Any], Any], text: str, stream: Any) -> None:
        self.factory = factory
        self.make = make
        self.text = text
        self.stream = stream
        self.size = min(len(text), KEPT // 2) + OVERHEAD  # a long text must not displace itself

    def joined(self, others: list[Text]) -> Any:
        """Return pydevd's message for this text and others that were printed to the same stream after it."""
        return self.make(self.factory, "".join([self.text, *[each.text for each in others]]), self.stream)

    def send(self, connection: Any, *_arguments: Any) -> None:
        """Send the text immediately."""
        self.joined([]).send(connection)


class OutputQueue:
    """The output that waits for one connection to debugpy's adapter.

    The object also acts as a message in the queue of pydevd's writer thread, which calls `send`. So output stays in
    order with other messages unless there is too much of it.

    Args:
        put: Adds a message to the queue of the writer thread.
    """

    id = 0
    as_dict = None
    """Required by pydevd's writer, as `id`."""

    expects_receipts = False
    """Whether the adapter that this process will use answers requests for receipts; forked children inherit it."""

    def __init__(self, put: Callable[[Any, bool], None]) -> None:
        self._put = put
        self._lock = threading.RLock()
        """Reentrant, because a signal handler that prints may interrupt a thread that holds it."""
        self._waiting: deque[Text] = deque()
        self._size = 0
        self._left_out_lines = self._left_out_characters = 0
        self._is_scheduled = False
        """Whether this object is in the writer's queue, or will be put there when a receipt arrives."""
        self._awaits_receipt = False
        self._has_receipts = self.expects_receipts
        self._sent = 0
        """Size of the output that was sent after the last portion."""
        self._next_portion = 0.0
        """Time before which no output is sent."""
        self._is_sending = self._is_ending = self._has_ended = False

    def add(self, text: Text) -> None:
        """Queue a text; called in the job's threads, and never waits for the adapter."""
        with self._lock:
            if not self._waiting:
                self._size = 0  # an exception of a signal handler may have come between the two
            self._waiting.append(text)
            self._size += text.size
            while self._waiting and self._size > KEPT:
                oldest = self._waiting.popleft()
                self._size -= oldest.size
                self._left_out_lines += oldest.text.count("\n")
                self._left_out_characters += len(oldest.text)
            if not self._is_scheduled:
                self._schedule()

    def end(self) -> None:
        """Let the writer send all waiting output without a limit, because the connection is about to end."""
        with self._lock:
            self._is_ending = True
            self._schedule()

    def drain(self, writer: Any) -> None:
        """Wait until the output so far was sent, for a limited time: pydevd drops the rest after half a second."""
        self.end()
        deadline = time.monotonic() + DRAIN_LIMIT
        while (self._waiting or self._is_sending) and writer.is_alive() and time.monotonic() < deadline:
            if self._has_ended:  # what waits was printed later, by a thread that does not stop
                return
            time.sleep(POLL_INTERVAL)

    def receipt_received(self, *, is_success: bool) -> None:
        """Continue to send: the adapter has passed on the last portion, or does not confirm that."""
        with self._lock:
            self._has_receipts = is_success
            if self._awaits_receipt:
                self._awaits_receipt = False
                self._schedule()

    def send(self, connection: Any, *_arguments: Any) -> None:
        """Send waiting output; called in pydevd's writer thread."""
        delay = self._next_portion - time.monotonic()
        if delay > 0 and not self._is_ending:
            time.sleep(min(delay, POLL_INTERVAL))
            self._schedule()
            return
        commands: list[Any] = []
        self._is_sending, is_end = True, self._is_ending
        with FLOODS.guarded():
            commands = [*self._take(), *self._plan_next()]
        for command in commands:
            command.send(connection)
        self._is_sending, self._has_ended = False, is_end

    def _schedule(self) -> None:
        self._put(self, False)  # first: a signal handler may raise an exception here
        self._is_scheduled = True

    def _take(self) -> list[Any]:
        """Remove the texts that are sent next, and return the messages."""
        taken: list[list[Text]] = []
        with self._lock:
            notes = self._left_out()
            while self._waiting and (self._is_ending or self._sent < PORTION):
                text = self._waiting.popleft()
                self._size -= text.size
                self._sent += text.size
                if taken and taken[-1][0].stream == text.stream:
                    taken[-1].append(text)
                else:
                    taken.append([text])
        return [*notes, *(first.joined(others) for first, *others in taken)]

    def _left_out(self) -> list[Any]:
        """Return a message about the output that was left out since the last one, if there is any."""
        lines, characters = self._left_out_lines, self._left_out_characters
        if not characters:
            return []
        self._left_out_lines = self._left_out_characters = 0
        count = f"{lines:,} lines" if lines else f"{characters:,} characters"
        note = f"[relay-agent: {count} left out; the process prints faster than its output can be sent]\n"
        return [self._waiting[0].factory.make_console_message(note)]

    def _plan_next(self) -> list[Any]:
        """Decide when this object is called next; return the request for a receipt if one is needed."""
        with self._lock:
            if self._sent < PORTION // 2:
                self._is_scheduled = False
                if self._waiting:
                    self._schedule()
                return []
            self._sent = 0
            self._next_portion = time.monotonic() + INTERVAL
            self._awaits_receipt = self._has_receipts and not self._is_ending
            if not self._awaits_receipt:
                self._schedule()
                return []
        return [_receipt_request()]
