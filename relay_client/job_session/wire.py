"""The messages of a session to its editor and its ranks' debuggers, and the responses that it waits for. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relay_client.compare.console import Command
from relay_client.editor.messages import EditorMessages
from relay_core.dap.messages import Message, Request, Response, response_to

LOST = "the rank or its debugger has ended"

OnResponse = Callable[[Response], None]
"""Called once with a rank's response, or with a failed response if the rank's connection ends before that."""


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
    """Close the connection to a rank, after the messages sent so far."""

    member: int


@dataclass(frozen=True)
class OpenChild:
    """Open another connection to the debugger of a rank, for which a child process is waiting, and call `join`."""

    member: int
    """The rank that has started the process, or the child process of a rank that has started it."""
    pid: int


@dataclass(frozen=True)
class FindPlaces:
    """Find out where these ranks are without stopping them, and call `stops.places_found`."""

    members: frozenset[int]


@dataclass(frozen=True)
class AskRanks:
    """Answer a command of the debug console, usually by asking all ranks, and answer the request."""

    request: Request
    """The editor's request."""
    question: Command


@dataclass(frozen=True)
class EndSession:
    """Close the connections to the editor and to the ranks."""


Output = ToEditor | ToRank | CloseRank | OpenChild | FindPlaces | AskRanks | EndSession


_EMPTY = {"stackTrace": "stackFrames", "scopes": "scopes", "variables": "variables"}
"""The list in the response to each request that an editor sends for its views, without any action of the user."""


class Wire(EditorMessages):
    """The outputs of a session, in order, and the requests to ranks that have not been answered yet."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._to_editor = itertools.count(1)
        self._to_ranks = itertools.count(1)
        self._pending: dict[tuple[int, int], tuple[Request, OnResponse]] = {}

    def take(self) -> list[Output]:
        """Return all outputs, and remove them."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def put(self, output: Output) -> None:
        """Add an output."""
        self._outputs.append(output)

    # To the editor:

    def send(self, message: Message) -> None:
        """Send a message."""
        message["seq"] = next(self._to_editor)
        self.put(ToEditor(message))

    def answer_outdated(self, request: Request, reason: str) -> None:
        """Answer a request about a rank that has since continued or ended.

        A request that the editor sends for one of its views succeeds with nothing to show, because the user has not
        asked for it, and the editor will fill the view again at the next stop. Other requests fail.
        """
        if (name := _EMPTY.get(request["command"])) is not None:
            self.answer(request, {name: []})
        else:
            self.fail(request, reason)

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
        self._pending[member, number] = request, on_response
        self.put(ToRank(member, request))

    def answered(self, member: int, response: Response) -> None:
        """Pass a rank's response to the function that was registered for it."""
        found = self._pending.pop((member, response["request_seq"]), None)
        if found is not None:
            found[1](response)

    def lost(self, member: int) -> None:
        """Fail all requests to a rank whose connection has ended."""
        for key in [key for key in self._pending if key[0] == member]:
            request, on_response = self._pending.pop(key)
            on_response({**response_to(request, success=False), "message": LOST})

    def refuse(self, member: int, request: Request) -> None:
        """Reject an unsupported request from a rank's debugger, which would otherwise wait for a response."""
        response = response_to(request, success=False)
        self.put(ToRank(member, {**response, "seq": next(self._to_ranks), "message": "unsupported"}))
