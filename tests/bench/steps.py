"""Steps through tests.bench.debuggee: `python -m tests.bench.steps PORT COUNT [prompt] [watch]` prints the times.

After each step it asks what an editor asks, one by one, because each request needs the answer to the one
before; then, a moment later, for the rest of the call stack. VS Code asks the first two of these requests at once, and
the others 420 ms later (`updateTreeScheduler` in variablesView.ts, `refreshTopOfCallstack` in debugModel.ts); that time
is not counted here.

debugpy's adapter leaves Nagle's algorithm on, so a message of its that follows another waits until the editor's system
has acknowledged that one, which takes 40 ms. With "prompt" the acknowledgement comes at once, as it does from an agent.

With "watch" it also evaluates three watch expressions, at once, when it has the topmost frame.

A blocking socket and no event loop: next to no work in Python between one answer and the next request.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from relay_core.dap.framing import Message, MessageDecoder, encode
from tests.bench.debuggee import STEPS

SCRIPT = Path(__file__).with_name("debuggee.py")
WITHIN = 30.0
LATER = 0.42
"""Seconds."""
WATCHES = ("total", "total + 1", "total - 1")
LATER_STEPS = 6
"""The last ones, after which that is asked."""


class Editor:
    """A debugger that does one thing at a time."""

    def __init__(self, port: int, *, prompt: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WITHIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waited = 0.0
        """Seconds that requests took until their answers."""
        self._prompt = prompt
        self._decoder = MessageDecoder()
        self._received: deque[Message] = deque()
        self._seq = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, command: str, **arguments: object) -> int:
        """Send a request and return its number."""
        self._seq += 1
        self._socket.sendall(encode({"seq": self._seq, "type": "request", "command": command, "arguments": arguments}))
        return self._seq

    def request(self, command: str, **arguments: object) -> Message:
        """Return what a request is answered with."""
        asked = time.monotonic()
        answer = self.answer(self.send(command, **arguments))
        self.waited += time.monotonic() - asked
        return answer

    def answer(self, seq: int) -> Message:
        """Return the answer to the request of that number."""
        response = self._next(lambda message: message.get("request_seq") == seq)
        assert response["success"], response
        return response.get("body") or {}

    def event(self, name: str) -> Message:
        """Return the next event of that name."""
        return self._next(lambda message: message.get("event") == name).get("body") or {}

    def _next(self, wanted: Callable[[Message], bool]) -> Message:
        """Return the first message that is wanted; others are kept."""
        seen = 0
        while True:
            for message in list(self._received)[seen:]:
                if wanted(message):
                    self._received.remove(message)
                    return message
            seen = len(self._received)
            data = self._socket.recv(65536)
            assert data, "the debugger has gone"
            if self._prompt:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            self._received += self._decoder.receive_data(data)


def attach(editor: Editor) -> int:
    """Stop at the first step and return the thread."""
    line = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.strip() == STEPS[0])
    source = {"path": str(SCRIPT)}
    editor.request("initialize", adapterID="debugpy", pathFormat="path")
    attaching = editor.send("attach", justMyCode=False)
    editor.event("initialized")
    editor.request("setBreakpoints", source=source, breakpoints=[{"line": line}])
    editor.request("configurationDone")
    editor.answer(attaching)
    thread = editor.event("stopped")["threadId"]
    editor.request("setBreakpoints", source=source, breakpoints=[])
    return int(thread)


def steps(port: int, count: int, *, prompt: bool, watch: bool = False) -> dict[str, list[float]]:
    """Return the seconds of each step by kind; see `tests.bench.figures.stepping.KINDS`."""
    alone, shown, requests, whole, all_requests = [], [], [], [], []
    with contextlib.closing(Editor(port, prompt=prompt)) as editor:
        thread = attach(editor)
        for number in range(count):
            started, waited = time.monotonic(), editor.waited
            editor.request("next", threadId=thread)
            editor.event("stopped")
            alone.append(time.monotonic() - started)
            look(editor, thread, WATCHES if watch else ())
            shown.append(time.monotonic() - started)
            requests.append(editor.waited - waited)
            if number >= count - LATER_STEPS:
                time.sleep(LATER)
                asked = time.monotonic()
                editor.request("stackTrace", threadId=thread, startFrame=1, levels=19)
                whole.append(shown[-1] + time.monotonic() - asked)
                all_requests.append(editor.waited - waited)
        editor.request("disconnect", terminateDebuggee=False)
    return {"steps": alone, "shown": shown, "requests": requests, "whole": whole, "all requests": all_requests}


def look(editor: Editor, thread: int, watches: Sequence[str]) -> None:
    """Ask for what VS Code shows of the topmost frame."""
    editor.request("threads")
    top = editor.request("stackTrace", threadId=thread, startFrame=0, levels=1)["stackFrames"][0]
    evaluating = [editor.send("evaluate", expression=each, frameId=top["id"], context="watch") for each in watches]
    for number in evaluating:
        editor.answer(number)
    scope = editor.request("scopes", frameId=top["id"])["scopes"][0]
    editor.request("variables", variablesReference=scope["variablesReference"])


if __name__ == "__main__":
    port, count = map(int, sys.argv[1:3])
    options = sys.argv[3:]
    print(json.dumps(steps(port, count, prompt="prompt" in options, watch="watch" in options)), flush=True)
