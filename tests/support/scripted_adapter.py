"""A debug adapter without a process: it stops at each step, and its answers say what they are about."""

from __future__ import annotations

from typing import Any

from relay_core.dap.framing import Message, MessageDecoder, encode


class ScriptedAdapter:
    """Answers the requests of an editor, one at a time.

    Frames are numbered 10 * stop + depth, scopes 100 * stop + which; scopes and variables tell the
    number of evaluations so far.
    """

    def __init__(self) -> None:
        self.stop = 0
        self.evaluations = 0
        self.requests: list[Message] = []
        """All that came."""
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
        """Answer one request; return all that is said then."""
        request = self._pending.pop(0)
        command, arguments = request["command"], request.get("arguments") or {}
        if command == "evaluate":
            self.evaluations += 1
        body = self.answer(command, arguments)
        said = self._say(
            {"type": "response", "request_seq": request["seq"], "command": command}
            | ({"success": False, "message": "it is gone"} if body is None else {"success": True, "body": body})
        )
        if command == "next":
            self.stop += 1
            said += self._say({"type": "event", "event": "output", "body": {"output": 'it "stopped" here'}})
            said += self._say({"type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})
        return said

    def answer(self, command: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the body of an answer, or None for a refusal; this is also what a test expects to hear."""
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

    def _say(self, message: Message) -> bytes:
        self._seq += 1
        return encode({"seq": self._seq, **message})
