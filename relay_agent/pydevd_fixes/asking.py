"""How pydevd answers at once what an editor is going to ask at a stop (`relay_core.dap.ahead`).

debugpy's adapter takes about a millisecond for a question, handles one after the other, and what an editor asks depends
on what it has heard. So a process that has been told the plan asks by itself, next to its threads: its questions are
carried out like the adapter's, and what is answered is kept from the adapter and told as news, which it passes on.
"""

from __future__ import annotations

import json
import time
from typing import Any
from weakref import WeakKeyDictionary

from relay_agent.asking import Asking
from relay_core.dap.ahead import ASKS_ITSELF, NEWS, changes_nothing
from relay_core.dap.framing import Message

__all__ = ["install"]


def install() -> None:
    """Have this process's pydevd do so, and that of its forked children, in connections that are made from now on."""
    try:
        from _pydevd_bundle.pydevd_comm import WriterThread  # noqa: PLC0415 - in debug runs only, as the rest
        from _pydevd_bundle.pydevd_comm_constants import CMD_RETURN  # noqa: PLC0415
        from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415
        from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

        process, add = PyDevJsonCommandProcessor.process_net_command_json, WriterThread.add_command
    except (ImportError, AttributeError):  # pydevd's inside may change; then the agent asks
        return
    planned: WeakKeyDictionary[Any, Asking] = WeakKeyDictionary()
    """By the thread that writes to the adapter."""

    def hear(processor: Any, debugger: Any, contents: bytes | str) -> None:
        """Take a message of the adapter's."""
        message, writer = json.loads(contents), debugger.writer
        match message:
            case {"event": "relayDebug.plan", "body": {"questions": questions}}:
                planned.setdefault(writer, Asking()).plan(questions)
                return
            case {"command": "initialize"} if writer in planned:
                planned[writer].plan([])  # it was another debugger's
            case {"command": "configurationDone"}:
                tell(writer, {"type": "event", "event": ASKS_ITSELF})
        if writer in planned and not changes_nothing(message):
            planned[writer].end_round()
        process(processor, debugger, contents)

    def add_or_keep(writer: Any, command: Any) -> None:
        """Take a message for the adapter, from any thread."""
        asking, message = planned.get(writer), command.as_dict
        match message:
            case {"event": "stopped", "body": {"threadId": int(thread)}} if asking:
                said = asking.stopped(thread, time.monotonic())
                if said.news:
                    message["body"][NEWS] = said.news["body"]
                    command = NetCommand(command.id, command.seq, message, is_json=True)
                add(writer, command)
            case {"type": "response"} if asking and asking.has_asked(message):
                said = asking.answered(message, len(command._as_bytes), time.monotonic())
                if said.news:
                    tell(writer, said.news)
            case _:
                add(writer, command)
                return
        if said.requests:
            add(writer, _Questions(writer, said.requests))

    def tell(writer: Any, event: Message) -> None:
        add(writer, NetCommand(CMD_RETURN, 0, event, is_json=True))

    PyDevJsonCommandProcessor.process_net_command_json = hear
    WriterThread.add_command = add_or_keep


class _Questions:
    """Requests, in the place of a message: pydevd's writer carries them out when it comes to them."""

    id = 0
    """Of no message."""
    as_dict = None

    def __init__(self, writer: Any, requests: list[Message]) -> None:
        self._writer = writer
        self._requests = requests

    def send(self, _connection: object) -> None:
        """Carry them out as if they came from the adapter."""
        debugger = self._writer.py_db
        for request in self._requests:
            debugger.reader.process_net_command_json(debugger, json.dumps(request))
