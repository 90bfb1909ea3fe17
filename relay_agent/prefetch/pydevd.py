"""How pydevd answers at once what an editor is going to ask at a stop (`relay_core.dap.prefetch`).

debugpy's adapter takes about a millisecond for a question, handles one after the other, and what an editor asks depends
on what it has heard. So a process that has been told the plan asks by itself, next to its threads: its questions are
carried out like the adapter's, and what is answered is kept from the adapter and told as news, which it passes on.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections import deque
from typing import Any

from relay_agent.prefetch.engine import Asking, Said
from relay_core.dap import prefetch
from relay_core.dap.messages import Request

__all__ = ["Asker", "install"]


def install() -> None:
    """Have this process's pydevd do so, and that of its forked children, on connections that are made from now on."""
    try:
        from _pydevd_bundle.pydevd_comm import WriterThread  # noqa: PLC0415 - in debug runs only, as below
        from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

        process, add = PyDevJsonCommandProcessor.process_net_command_json, WriterThread.add_command
    except (ImportError, AttributeError):  # pydevd's inside may change; then the agent asks
        return
    askers: weakref.WeakKeyDictionary[Any, Asker] = weakref.WeakKeyDictionary()
    """By the thread that writes to the adapter."""

    def hear_and_process(processor: Any, debugger: Any, contents: bytes | str, *arguments: Any, **named: Any) -> None:
        """Carry out a message of the adapter's or a question, in the thread that comes with it."""
        asker = askers.get(debugger.writer)
        if asker is None:
            asker = askers[debugger.writer] = Asker(debugger)
        asker.hear(contents)
        process(processor, debugger, contents, *arguments, **named)

    def add_instead(writer: Any, command: Any) -> None:
        """Have pydevd's writer send a message to the adapter, or what takes its place; called from any thread."""
        asker = askers.get(writer)
        for instead in asker.instead_of(command) if asker else [command]:
            add(writer, instead)

    PyDevJsonCommandProcessor.process_net_command_json = hear_and_process
    WriterThread.add_command = add_instead


class Asker:
    """One connection to debugpy's adapter, and what pydevd's writer finds among the messages if it is to ask."""

    id = 0
    """Of no message."""
    as_dict = None

    def __init__(self, debugger: Any) -> None:
        self._debugger = weakref.ref(debugger)
        self._asking = Asking()
        self._after = 0
        """Number of the editor's last request that let the process go on, if it has told a plan."""
        self._left: deque[Request] = deque()
        """Questions that have not been carried out."""
        self._turn = threading.Lock()
        """Held while they are."""

    def hear(self, contents: bytes | str) -> None:
        """Take note of a message of the adapter's, before it is carried out."""
        try:
            message = json.loads(contents)
        except ValueError:
            return  # pydevd says so
        match message:
            case {"command": "initialize"}:
                self._asking.plan([])  # another debugger
            case {"arguments": {prefetch.PREFETCH_SET: {"after": int(after), **plan}}}:
                self._after = after
                if plan:
                    self._asking.plan(plan.get("questions"))
        if message.get("type") == "request" and not prefetch.is_read_only(message):
            self._asking.end_round()
            self.send()  # an editor may have asked the same before this request

    def instead_of(self, command: Any) -> list[Any]:
        """Return what is to be sent in the place of a message to the adapter."""
        message, make = command.as_dict, type(command)
        match message:
            case {"event": "stopped", "body": {"threadId": int(thread)}}:
                said = self._asking.stopped(thread, self._after, time.monotonic())
                if said.news:
                    message["body"][prefetch.PREFETCH_EVENT] = said.news["body"]
                    command = make(command.id, command.seq, message, is_json=True)
                return [command, *self._to_ask(said)]
            case {"type": "response"} if self._asking.has_asked(message):
                size = len(command._as_bytes)  # noqa: SLF001 - pydevd sends these
                said = self._asking.answered(message, size, time.monotonic())
                news = [make(command.id, 0, said.news, is_json=True)] if said.news else []
                return [*news, *self._to_ask(said)]
            case {"type": "response", "command": "configurationDone"}:
                return [
                    command,
                    make(command.id, 0, {"type": "event", "event": prefetch.IN_PROCESS}, is_json=True),
                ]
        return [command]

    def _to_ask(self, said: Said) -> list[Asker]:
        """Return what lets the writer ask."""
        self._left.extendleft(reversed(said.requests))  # what follows from an answer comes first
        return [self] if said.requests else []

    def send(self, _connection: object = None) -> None:
        """Carry out what is left, as if it came from the adapter; return when all is done, whoever does it."""
        debugger: Any = self._debugger()
        with self._turn:
            while self._left:
                debugger.reader.process_net_command_json(debugger, json.dumps(self._left.popleft()))
