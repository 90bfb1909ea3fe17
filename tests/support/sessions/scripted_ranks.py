"""A session of all ranks without I/O: its editor, and ranks whose debuggers answer as debugpy does.

Every rank uses the same ids, as real ones do, and everything that it sends names it: so a test sees whose answer came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from relay_client.compare.console import Command
from relay_client.job_session.members import RankName
from relay_client.job_session.session import JobSession
from relay_client.job_session.wire import AskRanks, CloseRank, EndSession, FindPlaces, OpenChild, ToEditor, ToRank
from relay_core.dap.messages import Body

FILE = "/job/train.py"
MAIN = 1


class ScriptedRank:
    """The debugger of one rank: it answers what it has received when a test lets it."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.received: deque[dict[str, Any]] = deque()
        self.sent: deque[dict[str, Any]] = deque()
        self.log: list[dict[str, Any]] = []
        """Every request, in order."""
        self.line = 10
        self.is_stopped = False
        self.moves: Callable[[ScriptedRank], None] = ScriptedRank.stop
        """What happens after a step or `continue`: by default it stops again, one line further."""
        self.verified = True
        self.answers_steps = True
        self.stops_at_pauses = True
        self.is_closing = False
        self._attach: dict[str, Any] | None = None
        self._id = 0

    def names(self) -> list[str]:
        return [request["command"] for request in self.log]

    def answer(self) -> None:
        """Answer the oldest request."""
        request = self.received.popleft()
        self.log.append(request)
        command, arguments = request["command"], request.get("arguments", {})
        if command == "attach":
            self._attach = request
            self._event("initialized")
        elif command == "configurationDone":
            self._respond(request)
            if self._attach is not None:
                self._respond(self._attach)
                self._event("thread", reason="started", threadId=MAIN)
        elif command in {"continue", "next", "stepIn", "stepOut"}:
            if not self.answers_steps:
                return
            self.is_stopped = False
            self._respond(request, {"allThreadsContinued": True} if command == "continue" else None)
            self._event("continued", threadId=arguments["threadId"], allThreadsContinued=True)
            self.line += 1
            self.moves(self)
        elif command == "pause":
            self._respond(request)
            if self.stops_at_pauses:
                self.stop("pause")
        else:
            self._respond(request, self._body(command, arguments))

    def _body(self, command: str, arguments: Any) -> Body:
        if command in {"setBreakpoints", "setFunctionBreakpoints"}:
            wanted, state = arguments["breakpoints"], {"verified": self.verified}
            return {"breakpoints": [{"id": number, **state, **_line(each)} for number, each in enumerate(wanted)]}
        frame = {"name": f"train{self.rank}", "line": self.line, "source": {"path": FILE}}
        value = {"name": "x", "value": f"of {self.rank}"}
        bodies: dict[str, Callable[[], Body]] = {
            "threads": lambda: {"threads": [{"id": MAIN, "name": "MainThread"}, {"id": 2, "name": "Thread-1"}]},
            "stackTrace": lambda: {"stackFrames": [{"id": self._next(), **frame}], "totalFrames": 1},
            "scopes": lambda: {"scopes": [{"name": f"Locals {self.rank}", "variablesReference": self._next()}]},
            "variables": lambda: {"variables": [{**value, "variablesReference": self._next()}]},
            "evaluate": lambda: {"result": f"of {self.rank}", "variablesReference": self._next()},
            "exceptionInfo": lambda: {"exceptionId": f"Error{self.rank}", "breakMode": "always"},
        }
        return bodies.get(command, dict)()

    def stop(self, reason: str = "breakpoint", **more: Any) -> None:
        """Stop on its own."""
        self.is_stopped = True
        self._event("stopped", reason=reason, threadId=MAIN, allThreadsStopped=True, **more)

    def output(self, text: str, category: str = "stdout", **more: Any) -> None:
        """Print something."""
        self._event("output", category=category, output=text, **more)

    def breakpoint_changed(self, number: int, **fields: Any) -> None:
        """Report another state of a breakpoint."""
        self._event("breakpoint", reason="changed", breakpoint={"id": number, **fields})

    def offer(self, pid: int) -> None:
        """Offer a child process."""
        self._event("debugpyAttach", name=f"Subprocess {pid}", request="attach", subProcessId=pid)

    def exit(self, code: int) -> None:
        """End, with an exit code."""
        self._event("exited", exitCode=code)
        self._event("terminated")

    def _next(self) -> int:
        self._id += 1
        return self._id

    def _respond(self, request: dict[str, Any], body: Body | None = None) -> None:
        response = {"type": "response", "request_seq": request["seq"], "success": True, "command": request["command"]}
        self.sent.append({"seq": 0, **response, **({} if body is None else {"body": body})})

    def _event(self, name: str, /, **body: Any) -> None:
        self.sent.append({"seq": 0, "type": "event", "event": name, "body": body})


def _line(breakpoint_: Any) -> Body:
    return {"line": breakpoint_["line"]} if "line" in breakpoint_ else {}


class Stage:
    """A session, its editor and its ranks. Each test delivers the messages and advances the time itself."""

    def __init__(self, **options: Any) -> None:
        self.session = JobSession(**options)
        self.now = 0.0
        self.ranks: dict[int, ScriptedRank] = {}
        """By the number of the connection."""
        self.received: list[dict[str, Any]] = []
        """What the editor has received."""
        self.asked: list[dict[str, Any]] = []
        self.wanted_places: list[frozenset[int]] = []
        self.questions: list[tuple[Any, Command]] = []
        """Commands that all ranks have to answer, each with its request."""
        self.offered: list[tuple[int, int]] = []
        """Ranks, and the ids of the child processes that their debuggers have offered."""
        self.has_ended = False
        self._seq = 0
        self._last_number = 0

    # The editor:

    def send(self, command: str, /, **arguments: Any) -> int:
        """Send a request, and return its number."""
        self._seq += 1
        request = {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
        self.asked.append(request)
        self.session.receive_editor(request, self.now)
        self.flush()
        return self._seq

    def ask(self, command: str, /, **arguments: Any) -> Any:
        """Send a request, let everything happen, and return the body of its response."""
        number = self.send(command, **arguments)
        self.settle()
        response = self.response(number)
        assert response["success"], response
        return response.get("body")

    def refusal(self, command: str, /, **arguments: Any) -> str:
        """The same for a request that fails; return the reason."""
        number = self.send(command, **arguments)
        self.settle()
        response = self.response(number)
        assert not response["success"]
        return response["message"]

    def response(self, number: int) -> dict[str, Any]:
        [found] = [each for each in self.received if each["type"] == "response" and each["request_seq"] == number]
        return found

    def events(self, name: str) -> list[Any]:
        """Return the bodies of the events of one kind."""
        return [each["body"] for each in self.received if each["type"] == "event" and each["event"] == name]

    def lines(self) -> list[str]:
        """Return relay-client's lines."""
        texts = [body["output"] for body in self.events("output")]
        return [text.removeprefix("relay-client: ").rstrip() for text in texts if text.startswith("relay-client: ")]

    def forget(self) -> None:
        """Drop what the editor has received."""
        self.received.clear()

    def thread(self, rank: int | str) -> int:
        """Return the editor's id of the main thread of a rank, or of a child process such as `0 / process 7`."""
        threads = self.ask("threads")["threads"]
        return next(each["id"] for each in threads if each["name"] == f"rank {rank} · MainThread")

    # The ranks:

    def join(self, rank: int, child: int | None = None) -> ScriptedRank:
        """Let a rank come, or a child process of one."""
        self._last_number += 1
        found = self.ranks[self._last_number] = ScriptedRank(rank)
        name = RankName(f"rank {rank}", rank, f"rank {rank} on node-1")
        self.session.join(self._last_number, name if child is None else name.of_child(child))
        self.flush()
        return found

    def leave(self, rank: ScriptedRank, exit_code: int | None = None) -> None:
        """Let the connection to a rank end, whose exit code only its agent may know."""
        number = next(number for number, found in self.ranks.items() if found is rank)
        del self.ranks[number]
        self.session.lost(number, self.now, exit_code)
        self.flush()

    def deliver(self, number: int) -> None:
        """Let the editor's session receive the oldest message of a rank."""
        message = self.ranks[number].sent.popleft()
        self.session.receive_rank(number, message, self.now)  # type: ignore[arg-type]
        self.flush()

    # Time, and what happens:

    def flush(self) -> None:
        for output in self.session.wire.take():
            match output:
                case ToEditor(message):
                    self.received.append(dict(message))
                case ToRank(number, message) if number in self.ranks:
                    self.ranks[number].received.append(dict(message))
                case CloseRank(number) if number in self.ranks:
                    self.ranks[number].is_closing = True
                case OpenChild(number, pid):
                    self.offered.append((self.ranks[number].rank, pid))
                case AskRanks(request, question):
                    self.questions.append((request, question))
                case FindPlaces(members):
                    self.wanted_places.append(members)
                case EndSession():
                    self.has_ended = True

    def settle(self) -> None:
        """Let everything happen that does not need time."""
        while busy := [(number, rank) for number, rank in self.ranks.items() if rank.received or rank.sent]:
            for number, rank in busy:
                while rank.received:
                    rank.answer()
                while rank.sent:
                    self.deliver(number)
        for rank in [rank for rank in self.ranks.values() if rank.is_closing]:
            self.leave(rank)

    def wait(self, seconds: float) -> None:
        """Let time pass, with all deadlines in it."""
        end = self.now + seconds
        while (due := self.session.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.session.tick(self.now)
            self.flush()
            self.settle()
        self.now = end


def attached(
    *ranks: int, lines: tuple[int, ...] = (10,), kind: type[Stage] = Stage, **options: Any
) -> tuple[Any, list[ScriptedRank]]:
    """Return a session with ranks that are attached and run."""
    stage = kind(**options)
    stage.ask("initialize", clientID="vscode", adapterID="debugpy")
    stage.send("attach", type="debugpy")
    found = [stage.join(rank) for rank in ranks]
    stage.settle()
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": line} for line in lines])
    stage.ask("configurationDone")
    stage.forget()
    return stage, found


def stopped(*ranks: int, **options: Any) -> tuple[Any, list[ScriptedRank]]:
    """Return a session whose ranks are all stopped at the same line."""
    stage, found = attached(*ranks, **options)
    for rank in found:
        rank.stop()
    stage.settle()
    stage.wait(3)
    return stage, found
