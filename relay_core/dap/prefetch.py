"""The messages and requests of DAP prefetching, which reduces a step from five round trips to one.

An editor that receives `stopped` requests the threads, the top of the call stack, its scopes and their variables, and
each of these requests needs the response to the previous one. The client learns which requests its editor sends
automatically, and sends them to the agent as the *prefetch set*. At the next stop, the agent sends the same requests to
debugpy, in addition to the editor's own requests, and sends requests and responses to the client in *prefetch events*.
If a request from the editor is in such an event, the client answers it as soon as the response is available.

    editor          client                              agent                     debugpy
      | next          |  prefetch set (if new), next      |  next                    |
      |               |                                   |                 stopped  |
      |      stopped  |    stopped, event with requests   |  threads, stackTrace ... |
      | threads       |              event with responses |                responses |
      |     response  |                               ... |                      ... |

These messages are DAP messages inside the stream, but neither the editor nor debugpy receives them. This module
contains what client and agent share; docs/concepts/prefetch.md describes the whole exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Arguments, arguments_of

# The values of the next two constants and their JSON keys are part of the wire format.
PREFETCH_SET = "relayDebug.prefetchSet"
"""A request from the client that contains the prefetch set: `arguments.requests` are requested at each stop from now
on."""
PREFETCH_EVENT = "relayDebug.prefetched"
"""An event that the agent sends. Its body has `requested`, the requests that debugpy will answer; `responses`, those
to such requests; and `after`, the number of the editor's last request that reached the agent and may change something,
or 0. Every request in `requested` has its response in `responses` of the same or a later event."""
RESUMING = frozenset({"continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "goto"})
"""Requests that lead to the next stop."""
MAX_PREFETCH_SET = 8
"""Maximum number of requests in a prefetch set; VS Code needs five."""
MAX_PREFETCH_EVENT = MAX_BODY + 1024 * 1024
"""Maximum number of bytes of JSON in a prefetched response, and in the requests of a prefetch set."""

_IDS = {"threads": "", "stackTrace": "threadId", "scopes": "frameId", "variables": "variablesReference"}
"""For each command, the argument with the id of the object that it requests."""
PREFETCHABLE = frozenset(_IDS)
"""Commands that can be prefetched; they change nothing in the process."""


class RequestTemplate(NamedTuple):
    """A request, without its id, for the stopped thread, its top frame, or a scope of that frame: valid at any stop."""

    command: str
    scope: int = 0
    """Index of the scope, for `variables`."""
    rest: Arguments = MappingProxyType({})
    """The arguments other than the id."""

    def as_json(self) -> dict[str, object]:
        """Return one element of `requests`."""
        return {"command": self.command, "scope": self.scope, "rest": dict(self.rest)}

    @classmethod
    def parse(cls, found: object) -> RequestTemplate | None:
        """Read one element of `requests`; return None if it is invalid or cannot be prefetched."""
        match found:
            case {"command": str(command), "scope": int(scope), "rest": dict(rest)}:
                return cls(command, scope, rest) if command in PREFETCHABLE and scope >= 0 else None
        return None


class StopIds:
    """The ids that belong to one stop, learned from responses.

    Args:
        thread: The id of the stopped thread.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._frame: int | None = None
        self._scopes: list[int] = []

    def template_for(self, command: str, arguments: Arguments) -> RequestTemplate | None:
        """Return the template that matches a request, or None if the request is for another thread, frame or object."""
        if command not in PREFETCHABLE:
            return None
        rest = dict(arguments)
        found = rest.pop(_IDS[command], None)
        ids = self._ids(command)
        if command == "threads":
            return RequestTemplate(command, 0, rest)
        return RequestTemplate(command, ids.index(found), rest) if isinstance(found, int) and found in ids else None

    def arguments(self, template: RequestTemplate) -> Arguments | None:
        """Return the arguments of the request at this stop, or None while its id is unknown."""
        if template.command == "threads":
            return dict(template.rest)
        ids = self._ids(template.command)[template.scope :]
        return {**template.rest, _IDS[template.command]: ids[0]} if ids else None

    def learn(self, command: str, arguments: Arguments, body: object) -> None:
        """Record the ids in a response."""
        match command, body:
            case "stackTrace", {"stackFrames": [{"id": int(frame)}, *_]}:
                # The first frame of a response with `startFrame` is not the top frame.
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


def is_read_only(request: Mapping[str, object]) -> bool:
    """True if earlier responses remain valid after this request.

    After an `evaluate` in any context, they do not, because even a watch expression may have side effects.
    """
    return request.get("command") in PREFETCHABLE


def is_watch(request: Mapping[str, object]) -> bool:
    """True if a request evaluates a watch expression; an editor that shows variables sends these at each stop."""
    return request.get("command") == "evaluate" and arguments_of(request).get("context") == "watch"
