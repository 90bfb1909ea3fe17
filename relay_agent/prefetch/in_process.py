"""Prefetching inside the debugged process, through two patches to pydevd; see `relay_core.dap.prefetch`.

debugpy's adapter takes about a millisecond per request and handles requests in sequence, and most of an editor's
requests depend on the previous response. A process that has the prefetch set avoids this delay: at a stop, pydevd
processes the requests as if the adapter had sent them. Their responses do not go to the adapter. Instead, the process
sends prefetch events, which the adapter passes on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from relay_agent.debugpy_internals.table import PREFETCH
from relay_agent.job.gevent_originals import json, threading, time
from relay_agent.prefetch.engine import FIRST_SEQ, PrefetchEngine, PrefetchOutput
from relay_core.dap import prefetch
from relay_core.dap.messages import Event, Request


def install() -> None:
    """Patch pydevd in this process and its forked children; this affects connections made from now on."""
    if not PREFETCH.is_available():  # the agent prefetches instead
        return
    from _pydevd_bundle.pydevd_comm import WriterThread  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    process, add = PyDevJsonCommandProcessor.process_net_command_json, WriterThread.add_command
    prefetchers: weakref.WeakKeyDictionary[Any, PydevdPrefetcher] = weakref.WeakKeyDictionary()
    """The prefetcher of each connection. The key is pydevd's thread that writes to the adapter."""

    def process_command(processor: Any, debugger: Any, contents: bytes | str, *arguments: Any, **named: Any) -> None:
        """Replacement for `process_net_command_json`; handles the adapter's requests and prefetch requests."""
        if not PREFETCH.is_off:
            with PREFETCH.guarded():
                prefetcher = prefetchers.get(debugger.writer)
                if prefetcher is None:
                    prefetcher = prefetchers[debugger.writer] = PydevdPrefetcher(debugger, add)
                prefetcher.request_received(contents)
        process(processor, debugger, contents, *arguments, **named)

    def add_command(writer: Any, command: Any) -> None:
        """Replacement for `add_command`, which queues a message for the adapter; called from any thread."""
        prefetcher = prefetchers.get(writer)
        for replacement in prefetcher.replace(command) if prefetcher else [command]:
            add(writer, replacement)

    PyDevJsonCommandProcessor.process_net_command_json = process_command
    WriterThread.add_command = add_command


class PydevdPrefetcher:
    """Prefetching for one connection to debugpy's adapter.

    The object also acts as a message in the queue of pydevd's writer thread, which calls `send`. So prefetch requests
    are processed in that thread, after the preceding messages have been sent.
    """

    id = 0
    """Required by pydevd's writer; not a message id."""
    as_dict = None

    def __init__(self, debugger: Any, add: Callable[[Any, Any], None]) -> None:
        self._debugger = weakref.ref(debugger)
        self._sending = threading.Lock()
        """Held while messages are replaced, to preserve pydevd's order."""
        self._held: list[Any] = []
        """Events, starting with `continued`, that wait for the response to a prefetch request."""
        self._add = add
        """pydevd's own `add_command`."""
        self._make: Callable[[Event], Any] = str
        """Converts an event to a message; set when the first message shows how."""
        self._engine = PrefetchEngine(threading.Lock())
        self._after = 0
        """Sequence number of the editor's last request that may change something, as sent by the agent."""
        self._queue: deque[Request] = deque()
        """Prefetch requests that have not been processed yet."""
        self._processing = threading.Lock()
        """Held while queued prefetch requests are being processed."""

    def request_received(self, contents: bytes | str) -> None:
        """Handle a request before pydevd processes it."""
        with self._fail_safe():
            self._handle_request(contents)

    def _handle_request(self, contents: bytes | str) -> None:
        try:
            message = json.loads(contents)
        except ValueError:
            return  # pydevd reports the error
        match message:
            case {"command": "initialize"}:
                self._engine.replace_set([])  # a new debugger
            case {"arguments": {prefetch.PREFETCH_SET: {"after": int(after), **prefetch_set}}}:
                self._after = after
                if prefetch_set:
                    self._engine.replace_set(prefetch_set.get("requests"))
        if message.get("type") == "request" and not prefetch.is_read_only(message):
            self._engine.change_requested(message)
            self._release(message)
            self.send()  # the client may already have used announced requests to answer the editor

    def replace(self, command: Any) -> list[Any]:
        """Return the messages to send to the adapter in place of a message.

        If a value takes longer than 3 s to format, pydevd lets the other threads run until that is done, and sends
        `continued` and `stopped` before the response. For the adapter's own requests, the order is reversed, because
        the adapter does not pass on events while it waits for a response. At `continued`, an editor discards its
        pending requests, so events wait here as well.
        """
        messages: list[Any] = []
        if not PREFETCH.is_off:
            with self._fail_safe(), self._sending:
                self._replace_in_order(command, messages)
        if (
            PREFETCH.is_off and not messages and not _is_prefetch_response(command)
        ):  # the adapter does not expect this field
            return [command]
        return messages

    def _replace_in_order(self, command: Any, messages: list[Any]) -> None:
        if self._must_wait(command.as_dict):
            self._held.append(command)
            return
        messages += self._replacements(command)
        while self._held and not self._engine.is_waiting:
            messages += self._replacements(self._held[0])
            del self._held[0]

    def _must_wait(self, message: Any) -> bool:
        """Whether a message is an event that waits for the response to a prefetch request."""
        match message:
            case {"event": str(event)} if self._engine.is_waiting and self._engine.is_stopped:
                return bool(self._held) or event == "continued"
        return False

    def _release(self, request: Request) -> None:
        """Send waiting events, because a request may resume the process and the response may never arrive."""
        with self._sending:
            held, self._held = self._held, []
        debugger: Any = self._debugger()
        for command in held:
            debugger.writer.add_command(command)
        if held:
            self._engine.change_requested(request)  # one of the events may be `stopped`

    def _replacements(self, command: Any) -> list[Any]:
        message, make = command.as_dict, type(command)
        self._make = lambda event: make(command.id, 0, event, is_json=True)
        match message:
            case {"event": "stopped", "body": {"threadId": int(thread)}}:
                output = self._engine.begin_stop(thread, self._after, time.monotonic())
                if output.event:
                    message["body"][prefetch.PREFETCH_EVENT] = output.event["body"]
                    command = make(command.id, command.seq, message, is_json=True)
                return [command, *self._enqueue(output)]
            case {"type": "response"} if self._engine.has_requested(message):
                size = len(command._as_bytes)  # noqa: SLF001 - the bytes that pydevd would send
                output = self._engine.response_received(message, size, time.monotonic())
                events = [self._make(output.event)] if output.event else []
                return [*events, *self._enqueue(output)]
            case {"type": "response"} if self._engine.is_watching:
                output = self._engine.watch_answered(message, self._after, time.monotonic())
                events = [self._make(output.event)] if output.event else []
                return [*events, command, *self._enqueue(output)]
            case {"type": "response", "command": "configurationDone"}:
                return [command, self._make({"seq": 0, "type": "event", "event": prefetch.IN_PROCESS})]
        return [command]

    def _enqueue(self, output: PrefetchOutput) -> list[PydevdPrefetcher]:
        """Queue prefetch requests; if there are any, return this object as a message for the writer."""
        self._queue.extendleft(reversed(output.requests))  # requests that depend on a new response come first
        return [self] if output.requests else []

    def send(self, _connection: object = None) -> None:
        """Process all queued requests as if the adapter had sent them; wait if another thread is doing that."""
        with self._fail_safe(), self._processing:
            debugger: Any = self._debugger()
            while self._queue and not PREFETCH.is_off:
                debugger.reader.process_net_command_json(debugger, json.dumps(self._queue.popleft()))

    @contextlib.contextmanager
    def _fail_safe(self) -> Iterator[None]:
        """Switch prefetching off if the block raises; the client then receives failures, not pending responses."""
        with PREFETCH.guarded():
            yield
        if PREFETCH.is_off:
            self._give_up()

    def _give_up(self) -> None:
        held, self._held = self._held, []
        failures: list[Any] = []
        with contextlib.suppress(Exception):  # what has failed may fail again
            failures = [self._make(event) for event in self._engine.abandon()]
        debugger: Any = self._debugger()
        for message in [*failures, *held]:
            self._add(debugger.writer, message)


def _is_prefetch_response(command: Any) -> bool:
    match getattr(command, "as_dict", None):
        case {"type": "response", "request_seq": int(number)}:
            return number > FIRST_SEQ
    return False
