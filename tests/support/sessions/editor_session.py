"""An editor, the layer next to it, and a debugger whose responses each test sends itself; without a network."""

from dataclasses import replace
from typing import Any

from relay_client.editor.messages import JobView
from relay_client.editor.session import EditorSession
from relay_core.dap.framing import MessageDecoder, encode
from relay_core.layers.layer import Output, ToLocal, ToPeer
from relay_core.layers.stack import LayerStack

VIEW = JobView(5678, "myhc")
RANK = replace(VIEW, label="rank 0 on node", host="node", announces_endings=True)
INITIALIZE = {"seq": 1, "type": "request", "command": "initialize", "arguments": {"clientID": "vscode"}}
ATTACH = {"seq": 2, "type": "request", "command": "attach", "arguments": {}}
TERMINATED = {"seq": 50, "type": "event", "event": "terminated", "body": {}}


class Editor:
    """An editor, its layer, and a debugger whose responses each test sends itself."""

    def __init__(self, view: JobView = VIEW, **options: Any) -> None:
        self.now = 0.0
        self.session = EditorSession(view, self.now, **options)
        self.stack = LayerStack([self.session])
        self.received: list[dict[str, Any]] = []
        self.debugger: list[dict[str, Any]] = []
        self.ends: list[Output] = []
        """Outputs other than bytes."""
        self._from_session, self._to_debugger = MessageDecoder(), MessageDecoder()

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, ToLocal):
                self.received += self._from_session.receive_data(output.data)
            elif isinstance(output, ToPeer):
                self.debugger += self._to_debugger.receive_data(output.data)
            else:
                self.ends.append(output)

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.take(self.stack.receive_local(encode(message), self.now))

    def answer(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.take(self.stack.receive_peer(encode(message), self.now))

    def update(self, view: JobView) -> None:
        self.session.update(view, self.now)
        self.take(self.stack.tick(self.now))

    def conclude(self, reason: str, *, may_return: bool = False) -> None:
        self.session.conclude(reason, may_return=may_return)
        self.take(LayerStack([self.session]).start(self.now))

    def wait(self, until: float) -> None:
        """Let time pass; the layer is called at its deadlines only."""
        while (deadline := self.stack.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.take(self.stack.tick(self.now))
        self.now = until

    def lines(self) -> list[str]:
        """Return the output events received so far, with their categories, and forget everything received."""
        found = [message["body"] for message in self.received if message.get("event") == "output"]
        self.received.clear()
        return [f"{body['category']}: {body['output'].removeprefix('relay-client: ').rstrip()}" for body in found]


def attached(view: JobView = RANK, **options: Any) -> Editor:
    """Return an editor with a session, about which nothing has been shown yet."""
    editor = Editor(view, **options)
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.answer(response(1, "initialize"))
    editor.send(ATTACH)
    editor.answer(response(2, "attach"))
    editor.received.clear()
    editor.debugger.clear()
    return editor


def response(request: int, command: str, **fields: Any) -> dict[str, Any]:
    return {"seq": 40, "type": "response", "request_seq": request, "command": command, "success": True, **fields}


# Waiting:
