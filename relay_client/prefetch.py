"""The client's side of DAP prefetching (`relay_core.dap.prefetch`): a cache in the stream of one editor.

It learns which requests the editor sends automatically at a stop, sends the agent the prefetch set, and answers
requests from the editor with prefetched responses. Each response is used only once, and only until the editor sends a
request that may change something or the debugger reports a change.

Why it learns: a fixed list would fit one editor, and neither watch expressions nor the scopes that a user has opened.
Why responses are used once: an editor that asks again has a reason to expect another answer. The two time limits are
guesses about people and editors, not facts of the protocol; a wrong guess costs a round trip, or shows a value that is
up to `MAX_AGE` old.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.dap.messages import Arguments, Request, Response, arguments_of, is_message
from relay_core.dap.prefetch import (
    MAX_PREFETCH_EVENT,
    MAX_PREFETCH_SET,
    PREFETCH_EVENT,
    PREFETCH_SET,
    PREFETCHABLE,
    RESUMING,
    RequestTemplate,
    StopIds,
)
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

AUTOMATIC_DELAY = 1.0
"""Seconds after the last message to the editor within which a request counts as automatic; people are slower. VS Code
waits 0.4 s before it requests variables and the rest of the call stack."""
MAX_AGE = 2.0
"""Seconds for which a response may be used: objects in a stopped process can change without an event."""
DELAYED_STACKS = "supportsDelayedStackTraceLoading"
"""A debugpy capability that is removed here. With it, VS Code requests one frame, and the rest 0.42 s later. VS
Code draws the call stack 50 ms after `stopped`. If the response arrives before that, "Load More Stack Frames" is drawn
below the frame, and this line stays unless the rest of the call stack has changed since the last stop. Without the
capability, VS Code requests 20 frames at once; if they are prefetched, this takes no longer than one frame."""
CHANGES = frozenset({"continued", "exited", "invalidated", "stopped", "terminated", "thread"})
"""Events that invalidate earlier responses."""


class ResponseCache(Layer):
    """One editor's connection: the editor is the local program, the agent is the peer.

    Args:
        is_adapter_local: Whether debugpy's adapter runs on this machine, because the editor is listening. In this case,
            its capabilities cannot be changed, and requests for a single frame are neither prefetched nor answered.
    """

    longest_local, longest_peer = MAX_PARSED, MAX_PREFETCH_EVENT

    def __init__(self, *, is_adapter_local: bool = False) -> None:
        self._is_adapter_local = is_adapter_local
        self._sent_set: list[RequestTemplate] = []
        """The prefetch set that the agent has."""
        self._learned: list[RequestTemplate] = []
        """The automatic requests from the editor at this stop."""
        self._stop: StopIds | None = None
        self._stopped_at = 0.0
        self._idle_since = 0.0
        """When the editor last received something that makes it send requests."""
        self._pending: dict[int, Request] = {}
        """Requests from the editor that were passed on, by `seq`; the responses contain ids."""
        self._prefetched: dict[int, _PrefetchedRequest] = {}
        """Requests that the agent has sent to debugpy, by `seq`."""
        self._is_current = False
        """True while the debugger has reported no change since the last stop."""
        self._after = 0
        """`seq` of the editor's last request that may change something."""
        self._last_seq = 0
        """Highest `seq` of the messages that the editor has received."""

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Take a message from the editor; return the messages for the agent, or a prefetched response."""
        request = piece.request()
        if request and request["command"] in PREFETCHABLE:
            answer = self._try_answer(request, now)
            return [piece] if answer is None else answer
        self._after = request["seq"] if request else 0
        self._drop_unclaimed()
        self.is_finished |= piece.is_foreign  # then this is not an editor's connection
        if request and request["command"] in RESUMING:
            return [*self._set_update(now), piece]
        if request and request["command"] == "initialize":
            self._pending[request["seq"]] = request
        return [piece]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Take a message from the agent; return the messages for the editor."""
        if piece.name == PREFETCH_EVENT and (event := _parse_prefetch_event(piece)) is not None:
            return self._store(*event, now)
        self._last_seq = max(self._last_seq, piece.seq)
        return [self._observe(piece, now)]

    # From the editor:

    def _try_answer(self, request: Request, now: float) -> list[Output] | None:
        """Return the response to a request; [] if the response will arrive soon, None if the debugger has to answer."""
        command, arguments = request["command"], arguments_of(request)
        template = self._stop.template_for(command, arguments) if self._stop else None
        if self._is_adapter_local and arguments.get("levels") == 1:
            if template:
                self._pending[request["seq"]] = request
            return None
        is_automatic = now - self._idle_since <= AUTOMATIC_DELAY
        if template and is_automatic and template not in self._learned and len(self._learned) < MAX_PREFETCH_SET:
            self._learned.append(template)
        for number, prefetched in self._prefetched.items():
            if prefetched.is_available(now) and prefetched.matches(command, arguments):
                if prefetched.response is not None:
                    del self._prefetched[number]
                    return [self._answer(request, prefetched.response, now)]
                prefetched.claimed_by = request
                return []
        if template:
            self._pending[request["seq"]] = request
        return None

    def _set_update(self, now: float) -> list[Output]:
        """Return the message with the new prefetch set, if it has changed.

        A user who steps before the editor has sent all its requests will inspect a later stop, so templates of the
        previous set are kept.
        """
        wanted = list(self._learned)
        if now - self._stopped_at < AUTOMATIC_DELAY:
            wanted += [template for template in self._sent_set if template not in wanted]
        # `threads` comes last, because no other request needs its response:
        new_set = sorted(wanted[:MAX_PREFETCH_SET], key=lambda template: template.command == "threads")
        self._pending.clear()
        if new_set == self._sent_set:
            return []
        self._sent_set = new_set
        questions = [template.as_json() for template in new_set]
        update: Request = {"seq": 0, "type": "request", "command": PREFETCH_SET, "arguments": {"requests": questions}}
        return [ToPeer.of(update)]

    # From the agent:

    def _observe(self, piece: ToLocal, now: float) -> ToLocal:
        """Update the state from a message; return what the editor receives."""
        if piece.type == "response" and piece.request_seq in self._pending and (response := piece.response()):
            request = self._pending.pop(response["request_seq"], None)
            if request is not None:
                self._record_response(request, response, now)
                if request["command"] == "initialize":
                    return _without_delayed_stacks(response, piece)
        elif piece.name in CHANGES and (event := piece.event()):
            self._drop_unclaimed()
            self._is_current = False
            match event:
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    self._stop, self._is_current = StopIds(thread), True
                    self._learned, self._stopped_at, self._idle_since = [], now, now
        return piece

    def _store(self, after: int, asked: list[Request], answered: list[Response], now: float) -> list[Output]:
        """Store the contents of a prefetch event; return responses that the editor is waiting for."""
        if self._is_current and after == self._after != 0:
            self._prefetched |= {request["seq"]: _PrefetchedRequest(request) for request in asked[:MAX_PREFETCH_SET]}
        to_editor: list[Output] = []
        for response in answered:
            prefetched = self._prefetched.pop(response["request_seq"], None)
            if prefetched is None:
                continue  # it was dropped because of a change
            if prefetched.claimed_by is not None:
                to_editor.append(self._answer(prefetched.claimed_by, response, now))
            elif response.get("success") is True:
                prefetched.response, prefetched.received_at = response, now
                self._prefetched[response["request_seq"]] = prefetched
        return to_editor

    def _answer(self, request: Request, response: Response, now: float) -> ToLocal:
        """Return the debugger's response to the agent's request as the response to the editor's identical request."""
        self._record_response(request, response, now)
        # The response's own number may be lower than that of a message that the editor has received in the meantime.
        # Numbers of responses have no meaning, except that they must not decrease.
        return ToLocal.of({**response, "seq": self._last_seq, "request_seq": request["seq"]})

    def _record_response(self, request: Request, response: Response, now: float) -> None:
        """Learn the ids in a response that the editor receives now."""
        self._idle_since = now
        if self._stop:
            self._stop.learn(request["command"], arguments_of(request), response.get("body"))

    def _drop_unclaimed(self) -> None:
        """Drop responses that may be outdated; a request that the editor has already sent is still answered."""
        self._prefetched = {
            number: prefetched for number, prefetched in self._prefetched.items() if prefetched.claimed_by is not None
        }


def _without_delayed_stacks(response: Response, piece: ToLocal) -> ToLocal:
    """Return the response to `initialize` without the capability `DELAYED_STACKS`."""
    body = response.get("body")
    if not isinstance(body, dict) or DELAYED_STACKS not in body:
        return piece
    return ToLocal.of({**response, "body": {name: value for name, value in body.items() if name != DELAYED_STACKS}})


@dataclass(eq=False)
class _PrefetchedRequest:
    """A request that the agent has sent to debugpy."""

    request: Request
    """The agent's request."""
    claimed_by: Request | None = None
    """The editor's identical request, which is waiting for the response."""
    response: Response | None = None
    received_at: float = 0.0
    """When the response arrived."""

    def is_available(self, now: float) -> bool:
        """True if this request can answer a request from the editor."""
        return self.claimed_by is None and (self.response is None or now - self.received_at <= MAX_AGE)

    def matches(self, command: str, arguments: Arguments) -> bool:
        """True if this request has the given command and arguments."""
        return self.request["command"] == command and arguments_of(self.request) == arguments


def _parse_prefetch_event(piece: ToLocal) -> tuple[int, list[Request], list[Response]] | None:
    """Return `after`, `requested` and `responses` of a prefetch event; None for any other message."""
    match piece.event(any_length=True):
        case {"event": event, "body": {"after": int(after), "requested": list(asked), "responses": list(answered)}}:
            if event == PREFETCH_EVENT:
                requests = [message for message in asked if is_message(message, "request")]
                return after, requests, [message for message in answered if is_message(message, "response")]
    return None
