"""What an editor asks at each stop, asked before it does, so that a step costs one round trip instead of five.

An editor that hears `stopped` asks for threads, the top of the call stack, its scopes and their variables, and each of
these questions needs the answer to the one before. The client learns what its editor asks by itself, and tells the
agent: the *plan*. At the next stop the agent asks debugpy the same, next to it, and tells the client what it asks and
what the answers are: the *news*. An editor's question that the agent has asked already is answered by the client, at
once or as soon as the answer is there. A process that can do what the agent does here does it in its place.

    editor          client                              agent                     debugpy
      | next          |  plan (if it is a new one), next  |  next                    |
      |               |                                   |                 stopped  |
      |      stopped  |           stopped, news of asking |  threads, stackTrace ... |
      | threads       |                   news of answers |                  answers |
      |     answered  |                               ... |                      ... |

All speak of it inside the stream, in messages of the debug adapter protocol that never leave it: a request
`relayDebug.plan` and events `relayDebug.news`. What this module knows is common to all: the questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeGuard, overload

from relay_core.dap import framing
from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Arguments, Event, Request, Response
from relay_core.errors import ProtocolError

__all__ = [
    "ASKS_ITSELF",
    "MAX_NEWS",
    "MAX_PLAN",
    "NEWS",
    "PLAN",
    "QUESTIONS",
    "RESUMING",
    "Question",
    "Stop",
    "arguments_of",
    "changes_nothing",
    "is_message",
    "parse",
]

PLAN = "relayDebug.plan"
"""A request of the client: `arguments.questions` are asked at each stop from now on.

To a process that asks itself the agent hands it down as an argument of the same name in requests at which the process
resumes: `questions`, if they are new, and `after`, the number of that request."""
NEWS = "relayDebug.news"
"""An event of the agent: in its body `asked`, requests that debugpy will answer; `answered`, what it has answered to
such requests; and `after`, the number of the last request of the editor that the agent has heard and that may change
something (from a process that asks itself: at which it has resumed), or 0. Every request that is told as `asked` is
told as `answered` later."""
ASKS_ITSELF = "relayDebug.asksItself"
"""An event of a process that is debugged, to its agent: it takes plans, and sends the news, the first of a stop in the
body of the `stopped` event, under the name of news."""
RESUMING = frozenset({"continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "goto"})
"""Requests that lead to the next stop."""
MAX_PLAN = 8
"""Questions; VS Code has five."""
MAX_NEWS = MAX_BODY + 1024 * 1024
"""Bytes of JSON: an answer of any length, and requests that a plan has room for."""

Kind = Literal["request", "response", "event"]
_FORMS: dict[str, dict[str, type]] = {
    "request": {"command": str, "seq": int},
    "response": {"request_seq": int},
    "event": {"event": str},
}
"""Fields that messages must have."""
_IDS = {"threads": "", "stackTrace": "threadId", "scopes": "frameId", "variables": "variablesReference"}
"""What a question is about."""
QUESTIONS = frozenset(_IDS)
"""Requests that change nothing."""
_WATCHING = ("hover", "watch")
"""Contexts of `evaluate` in which an editor evaluates by itself, next to asking for variables, in any order."""


@dataclass(frozen=True)
class Question:
    """A request that makes sense at any stop: about the stopped thread, its top frame, or a scope of that frame."""

    command: str
    scope: int = 0
    """Which scope, for `variables`."""
    rest: Arguments = field(default_factory=dict)
    """The arguments that are the same at each stop."""

    def as_json(self) -> dict[str, object]:
        """Return it for a plan."""
        return {"command": self.command, "scope": self.scope, "rest": dict(self.rest)}

    @classmethod
    def parse(cls, found: object) -> Question | None:
        """Return the question that a plan contains, or None if it is none of these."""
        match found:
            case {"command": str(command), "scope": int(scope), "rest": dict(rest)}:
                return cls(command, scope, rest) if command in QUESTIONS and scope >= 0 else None
        return None


class Stop:
    """What is known about one stop: the ids in questions and answers.

    Args:
        thread: The id of the thread that has stopped.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._frame: int | None = None
        self._scopes: list[int] = []

    def __repr__(self) -> str:
        return f"<Stop thread={self._thread} frame={self._frame} scopes={self._scopes}>"

    def recognise(self, command: str, arguments: Arguments) -> Question | None:
        """Return the question that a request asks, or None if it is about something else."""
        if command not in QUESTIONS:
            return None
        rest = dict(arguments)
        about = rest.pop(_IDS[command], None)
        ids = self._ids(command)
        if command == "threads":
            return Question(command, 0, rest)
        return Question(command, ids.index(about), rest) if isinstance(about, int) and about in ids else None

    def arguments(self, question: Question) -> Arguments | None:
        """Return the arguments of a request, or None while it is not known what to ask about."""
        if question.command == "threads":
            return dict(question.rest)
        ids = self._ids(question.command)[question.scope :]
        return {**question.rest, _IDS[question.command]: ids[0]} if ids else None

    def learn(self, command: str, arguments: Arguments, body: object) -> None:
        """Note the ids in an answer."""
        match command, body:
            case "stackTrace", {"stackFrames": [{"id": int(frame)}, *_]}:
                if arguments.get("threadId") == self._thread and not arguments.get("startFrame"):
                    self._frame = frame
            case "scopes", {"scopes": list(scopes)}:
                references = [scope.get("variablesReference") for scope in scopes if isinstance(scope, dict)]
                if arguments.get("frameId") in self._ids("scopes"):
                    self._scopes = [reference for reference in references if isinstance(reference, int)]

    def _ids(self, command: str) -> list[int]:
        if command == "variables":
            return self._scopes
        if command == "scopes":
            return [] if self._frame is None else [self._frame]
        return [self._thread] if command == "stackTrace" else []


def changes_nothing(request: Mapping[str, object]) -> bool:
    """Whether answers that were true before a request are true after it."""
    command = request.get("command")
    return command in QUESTIONS or (command == "evaluate" and arguments_of(request).get("context") in _WATCHING)


@overload
def parse(body: bytes, kind: Literal["request"]) -> Request | None: ...
@overload
def parse(body: bytes, kind: Literal["response"]) -> Response | None: ...
@overload
def parse(body: bytes, kind: Literal["event"]) -> Event | None: ...
def parse(body: bytes, kind: Kind) -> Request | Response | Event | None:
    """Return a message of one type (`request`, `response`, `event`) with the fields it must have, or None."""
    try:
        message = framing.parse(body)
    except ProtocolError:
        return None
    return message if is_message(message, kind) else None


@overload
def is_message(found: object, kind: Literal["request"]) -> TypeGuard[Request]: ...
@overload
def is_message(found: object, kind: Literal["response"]) -> TypeGuard[Response]: ...
@overload
def is_message(found: object, kind: Literal["event"]) -> TypeGuard[Event]: ...
@overload
def is_message(found: object, kind: Kind) -> TypeGuard[Request | Response | Event]: ...
def is_message(found: object, kind: Kind) -> bool:
    """Whether JSON is a message of that type with the fields it must have."""
    if not isinstance(found, dict) or found.get("type") != kind:
        return False
    return all(isinstance(found.get(name), form) for name, form in _FORMS[kind].items())


def arguments_of(request: Mapping[str, object]) -> Arguments:
    """Return the arguments of a request, which may have none."""
    arguments = request.get("arguments")
    return arguments if isinstance(arguments, dict) else {}
