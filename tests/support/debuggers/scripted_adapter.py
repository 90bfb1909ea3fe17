"""A debug adapter without a process: it stops at each step, and its responses show which request they answer."""

from __future__ import annotations

from typing import Any

from relay_core.dap.framing import Message, MessageDecoder, encode


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
        request = self._pending.pop(0)
        command = request["command"]
        if command == "evaluate":
            self.evaluations += 1
        sent = self._send(self._respond(request))
        if command == "next":
            self.stop += 1
            sent += self._send({"type": "event", "event": "output", "body": {"output": 'it "stopped" here'}})
            sent += self._send({"type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})
        return sent

    def _respond(self, request: Message) -> Message:
        body = self.answer(request["command"], request.get("arguments") or {})
        response = {"type": "response", "request_seq": request["seq"], "command": request["command"]}
        return response | (
            {"success": False, "message": "it is gone"} if body is None else {"success": True, "body": body}
        )

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
