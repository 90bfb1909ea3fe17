"""A debug adapter without a process: it stops at each step, and its responses show which request they answer."""

from __future__ import annotations

import random
from typing import Any

from relay_agent.prefetch.engine import PrefetchEngine
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import IN_PROCESS, PREFETCH_EVENT, PREFETCH_SET, is_read_only


class ScriptedAdapter:
    """Answers the requests of an editor, one at a time.

    Frames are numbered 10 * stop + depth, scopes 100 * stop + which; scopes and variables show the
    number of evaluations so far.
    """

    def __init__(self) -> None:
        self.stop = 0
        self.evaluations = 0
        self.requests: list[Message] = []
        """All requests received."""
        self._decoder = MessageDecoder()
        self._pending: list[Message] = []
        self._seq = 0

    @property
    def busy(self) -> bool:
        """Whether requests wait for an answer."""
        return bool(self._pending)

    def receive(self, data: bytes) -> None:
        """Take bytes."""
        messages = self._decoder.receive_data(data)
        self.requests += messages
        self._pending += messages

    def work(self) -> bytes:
        """Answer one request; return all messages that are sent."""
        return self._carry_out(self._pending.pop(0))

    def _carry_out(self, request: Message) -> bytes:
        command = request["command"]
        if command == "evaluate":
            self.evaluations += 1
        sent = self._send(self._respond(request))
        if command == "next":
            self.stop += 1
            sent += self._send({"type": "event", "event": "output", "body": {"output": 'it "stopped" here'}})
            sent += self._send({"type": "event", "event": "stopped", "body": self._stop_body()})
        return sent

    def _respond(self, request: Message) -> Message:
        body = self.answer(request["command"], request.get("arguments") or {})
        response = {"type": "response", "request_seq": request["seq"], "command": request["command"]}
        return response | (
            {"success": False, "message": "it is gone"} if body is None else {"success": True, "body": body}
        )

    def _stop_body(self) -> Message:
        return {"threadId": 1, "reason": "step"}

    def answer(self, command: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the body of a response, or None for a failure; tests compare with it."""
        stop, evaluations = self.stop, self.evaluations
        if command == "threads":
            return {"threads": [{"id": 1, "name": f"after {stop} stops"}]}
        if command == "stackTrace":
            start = arguments.get("startFrame", 0)
            frames = [{"id": 10 * stop + depth} for depth in range(5)]
            return {"stackFrames": frames[start : start + arguments.get("levels", 20)]}
        if command == "scopes":
            frame = arguments["frameId"]
            references = [100 * stop + 10 * (frame % 10) + which for which in range(2)]
            scopes = [{"name": f"{evaluations}", "variablesReference": reference} for reference in references]
            return {"scopes": scopes} if frame // 10 == stop else None
        if command == "variables":
            reference = arguments["variablesReference"]
            values = [{"name": "x", "value": f"{stop} {evaluations} {reference}"}]
            return {"variables": values} if reference // 100 == stop else None
        assert command in {"next", "evaluate"}, f"no editor asks for {command}"
        return {}

    def _send(self, message: Message) -> bytes:
        self._seq += 1
        return encode({"seq": self._seq, **message})


class ScriptedJob(ScriptedAdapter):
    """The same in front of a process that prefetches."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._engine = PrefetchEngine()
        self._after = 0
        self._own: list[Message] = []
        """Its own requests."""
        self._events: list[Message] = [{"type": "event", "event": IN_PROCESS}]

    @property
    def busy(self) -> bool:
        """Whether there is something to do or to send."""
        return bool(self._pending or self._own or self._events)

    def work(self) -> bytes:
        """Send an event, or answer one request, the editor's or its own."""
        if self._events:
            return self._send(self._events.pop(0))
        if self._own and not (self._pending and self._rng.random() < 0.5):
            self._carry_out_own()
            return b""
        message = self._pending.pop(0)
        argument = message["arguments"].pop(PREFETCH_SET, {})
        self._after = argument.get("after", self._after)
        if "requests" in argument:
            self._engine.replace_set(argument["requests"])
        if not is_read_only(message):
            self._engine.change_requested(message)
            while self._own:
                self._carry_out_own()
        events, self._events = self._events, []
        carried_out = self._carry_out(message)
        again = self._engine.watch_answered({"type": "response", "request_seq": message["seq"]}, self._after, 0)
        self._own += again.requests
        events += [again.event] if again.event else []
        return b"".join(map(self._send, events)) + carried_out

    def _stop_body(self) -> Message:
        output = self._engine.begin_stop(1, self._after, 0)
        self._own += output.requests
        return super()._stop_body() | ({PREFETCH_EVENT: output.event["body"]} if output.event else {})

    def _carry_out_own(self) -> None:
        output = self._engine.response_received(self._respond(self._own.pop(0)), 0, 0)
        self._own += output.requests
        self._events += [output.event] if output.event else []
