"""The messages of a session to its editor and its ranks' debuggers, and the responses that it waits for. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relay_client.editor.messages import CONSOLE, PREFIX
from relay_core.agent_api.evaluation import Evaluate
from relay_core.dap.messages import Body, Event, Message, Request, Response

__all__ = [
    "CloseRank",
    "CompareRanks",
    "EndSession",
    "FindPlaces",
    "OnResponse",
    "Output",
    "ToEditor",
    "ToRank",
    "Wire",
    "reason_of",
]

LOST = "the rank has ended, or its debugger has"

OnResponse = Callable[[Response], None]
"""Called once with a rank's response; with a failed one if the rank's connection ends before it."""


@dataclass(frozen=True)
class ToEditor:
    """Send a message to the editor."""

    message: Message


@dataclass(frozen=True)
class ToRank:
    """Send a message to the debugger of a rank."""

    member: int
    message: Message


@dataclass(frozen=True)
class CloseRank:
    """End the connection to a rank, after what was sent."""

    member: int


@dataclass(frozen=True)
class FindPlaces:
    """Find out where these ranks are without stopping them, and call `places_found`."""

    members: frozenset[int]


@dataclass(frozen=True)
class CompareRanks:
    """Evaluate an expression in all ranks, and call `compared`."""

    request: Request
    """The request of the editor to answer."""
    evaluation: Evaluate


@dataclass(frozen=True)
class EndSession:
    """Close the editor's connection, and those to the ranks."""


Output = ToEditor | ToRank | CloseRank | FindPlaces | CompareRanks | EndSession


class Wire:
    """The outputs of a session, in order, and the requests of ranks and editor that are not answered yet."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._to_editor = itertools.count(1)
        self._to_ranks = itertools.count(1)
        self._pending: dict[tuple[int, int], tuple[str, OnResponse]] = {}

    def __repr__(self) -> str:
        return f"<Wire outputs={len(self._outputs)} pending={len(self._pending)}>"

    def take(self) -> list[Output]:
        """Return all outputs, and remove them."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def put(self, output: Output) -> None:
        """Add an output."""
        self._outputs.append(output)

    # To the editor:

    def event(self, name: str, body: Mapping[str, object] | None = None) -> None:
        """Send an event."""
        event: Event = {"seq": next(self._to_editor), "type": "event", "event": name, "body": dict(body or {})}
        self.put(ToEditor(event))

    def line(self, text: str, category: str = CONSOLE) -> None:
        """Show a line of relay-client."""
        self.event("output", {"category": category, "output": f"{PREFIX}{text}\n"})

    def answer(self, request: Request, body: Body | None = None) -> None:
        """Answer a request."""
        response = self._response(request, success=True)
        self.put(ToEditor({**response, "body": body} if body is not None else response))

    def fail(self, request: Request, reason: str, body: Body | None = None) -> None:
        """Answer a request that has failed; the editor shows the reason."""
        # In `format`, editors replace names in braces.
        error: Body = {"id": 1, "format": reason.replace("{", "(").replace("}", ")"), "showUser": True}
        response = self._response(request, success=False)
        self.put(ToEditor({**response, "message": reason, "body": body or {"error": error}}))

    def _response(self, request: Request, *, success: bool) -> Response:
        return {
            "seq": next(self._to_editor),
            "type": "response",
            "request_seq": request["seq"],
            "command": request["command"],
            "success": success,
        }

    # To the ranks:

    def ask(
        self,
        member: int,
        command: str,
        arguments: Mapping[str, object] | None = None,
        on_response: OnResponse = lambda _response: None,
    ) -> None:
        """Send a request to the debugger of a rank."""
        number = next(self._to_ranks)
        request: Request = {"seq": number, "type": "request", "command": command, "arguments": dict(arguments or {})}
        self._pending[member, number] = command, on_response
        self.put(ToRank(member, request))

    def answered(self, member: int, response: Response) -> None:
        """Pass a rank's response to whoever waits for it."""
        found = self._pending.pop((member, response["request_seq"]), None)
        if found is not None:
            found[1](response)

    def lost(self, member: int) -> None:
        """Fail all requests to a rank whose connection has ended."""
        for key in [key for key in self._pending if key[0] == member]:
            command, on_response = self._pending.pop(key)
            on_response(
                {"type": "response", "request_seq": key[1], "command": command, "success": False, "message": LOST}
            )

    def refuse(self, member: int, request: Request) -> None:
        """Answer a request of a rank's debugger that is not supported; it would wait otherwise."""
        self.put(ToRank(member, {**self._response(request, success=False), "message": "unsupported"}))


def reason_of(response: Response) -> str:
    """Return why a request has failed."""
    reason = response.get("message")
    return reason if isinstance(reason, str) and reason else "no reason given"
