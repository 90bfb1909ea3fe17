"""The agent's prefetch layer, between debugpy and the stream of one debugger; see `relay_core.dap.prefetch`.

The layer sends debugpy the requests in the client's prefetch set. It does not delay, drop or change any message between
the editor and debugpy.

Invariants: requests of the prefetch set are debugpy's normal requests, so a response is never invented; a request that
may change something ends the stop for prefetching, because later responses would be from before or after it; an entry
that is slow or large several times in a row is dropped, because it delays a user who steps on more than it helps.

Rejected: prefetching in the job, where pydevd sends the requests to itself and bypasses debugpy's adapter. That saves 3
ms per step and needs patches to pydevd in every debugged process (docs/concepts/prefetch.md).

What is ugly: the layer numbers its own requests from a range that no editor reaches, and removes their responses from
the stream. A connection of its own to debugpy would be cleaner, but debugpy's adapter accepts one client.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Event, Request, Response, arguments_of
from relay_core.dap.prefetch import (
    MAX_PREFETCH_SET,
    PREFETCH_EVENT,
    PREFETCH_SET,
    RequestTemplate,
    StopIds,
    is_read_only,
    is_watch,
)
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

FIRST_SEQ = 1_000_000_000
"""First sequence number of prefetch requests, high enough not to collide with those of an editor."""
SLOW = 0.1
"""Response time in seconds above which a request counts as slow. Most take 1 ms, but formatting the values of variables
may take a long time, which delays a user who steps again."""
LARGE = 64 * 1024
"""Response size in bytes above which a request counts as large. Responses to VS Code's requests are about 3 KiB long;
larger ones are sent only when requested."""
COSTLY_LIMIT = 3
"""Number of consecutive slow or large responses after which a request is excluded from prefetching."""


class PrefetchLayer(Layer):
    """The layer for one debugger's connection: debugpy is the local program, and the client is the peer."""

    longest_peer = MAX_PARSED

    def __init__(self) -> None:
        self._is_inside = False
        """Whether the editor is in the middle of a message that is too long to be parsed."""
        self._after = 0
        """Sequence number of the editor's last request that may change something."""
        self._set: list[_SetEntry] = []
        self._stop: _StopState | None = None
        """The current stop; None while the process may be running or a request may be changing something."""
        self._ids: StopIds | None = None
        """The ids of the last stop; None while the process may be running."""
        self._watches: set[int] = set()
        """Sequence numbers of the watch expressions at this stop that have no response yet."""
        self._seq = FIRST_SEQ
        self._pending: dict[int, _PendingRequest] = {}
        """Requests without a response, by sequence number."""

    @property
    def longest_local(self) -> int:  # type: ignore[override] # it changes
        """Large messages are read while requests are pending: their responses must not reach the editor."""
        return MAX_BODY if self._pending else MAX_PARSED

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Handle a message from the client; return it for debugpy."""
        self._is_inside = not piece.can_be_followed
        request = piece.request()
        if request and request["command"] == PREFETCH_SET:
            templates = arguments_of(request).get("requests")
            found = [RequestTemplate.parse(template) for template in templates] if isinstance(templates, list) else []
            self._set = [_SetEntry(template) for template in found if template][:MAX_PREFETCH_SET]
            return []
        if request is None or not is_read_only(request):
            self._after = request["seq"] if request else 0
            self._change_requested(request)
        self.is_finished |= piece.is_foreign  # then this is not a debugger's connection
        return [piece]

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Handle a message from debugpy; return messages for the client, and prefetch requests for debugpy."""
        if self._is_inside:
            self._change_requested(None)  # what is requested now reaches debugpy after the editor's message
        elif piece.name == "stopped" and (event := piece.event(any_length=True)):
            match event.get("body"):
                case {"threadId": int(thread)}:
                    self._ids = StopIds(thread)
                    self._watches.clear()
                    return [piece, *self._begin(self._ids, now)]
        is_awaited = self._pending or self._watches
        # A long message may have no head, but it may be a response that must not reach the editor.
        if is_awaited and piece.type in {"response", ""} and (response := piece.response(any_length=True)):
            number = response["request_seq"]
            if pending := self._pending.pop(number, None):
                return self._answered(pending, response, len(piece.whole_body), now)
            if number in self._watches:
                self._watches.remove(number)
                if self._ids is not None and not self._watches:  # its ids stay valid until the process resumes
                    # The announcement arrives before the editor requests anything.
                    return [*self._begin(self._ids, now), piece]
        return [piece]

    def _change_requested(self, request: Request | None) -> None:
        """Handle a request that may change something: send and announce no more requests for the current stop.

        After watch expressions, prefetching starts again, because nothing else then resumes the process or changes its
        values.
        """
        self._stop = None
        if request is not None and self._ids is not None and is_watch(request):
            self._watches.add(request["seq"])
        else:
            self._ids = None
            self._watches.clear()

    def _answered(self, pending: _PendingRequest, response: Response, size: int, now: float) -> list[Output]:
        """Handle the response, of `size` bytes, to a prefetch request."""
        is_costly = now - pending.sent_at > SLOW or size > LARGE
        pending.entry.costly = pending.entry.costly + 1 if is_costly else 0
        stop, request = pending.stop, pending.request
        stop.responses.append(response)
        stop.size += size
        if response.get("success") is True:
            stop.ids.learn(request["command"], request["arguments"], response.get("body"))
        else:
            stop.remaining.clear()  # the process has resumed
        return self._outputs(stop, now)

    def _begin(self, ids: StopIds, now: float) -> list[Output]:
        entries = [entry for entry in self._set if entry.costly < COSTLY_LIMIT]
        self._stop = stop = _StopState(ids, entries, self._after)
        return self._outputs(stop, now)

    def _outputs(self, stop: _StopState, now: float) -> list[Output]:
        """Return the event for the client, if one is due, and the requests for debugpy."""
        requests = self._next_requests(stop, now) if stop is self._stop else []
        event = self._next_event(stop)
        return [*([ToPeer.of(event)] if event else []), *map(ToLocal.of, requests)]

    def _next_requests(self, stop: _StopState, now: float) -> list[Request]:
        """Return the requests whose ids are known by now."""
        requests: list[Request] = []
        for entry in list(stop.remaining):
            arguments = stop.ids.arguments(entry.template)
            if arguments is not None:
                stop.remaining.remove(entry)
                self._seq += 1
                command = entry.template.command
                request: Request = {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
                self._pending[self._seq] = _PendingRequest(stop, entry, request, now)
                requests.append(request)
        stop.unannounced += requests
        return requests

    def _next_event(self, stop: _StopState) -> Event | None:
        """Return the next event for the client, or None.

        The adapter and the editor take some time to process an event; responses that arrive close together share one.
        An event does not wait for `variables`, because formatting the values may take a long time.
        """
        announced: list[Request] = []
        if stop is self._stop:
            in_progress = (pending.request["command"] for pending in self._pending.values() if pending.stop is stop)
            if stop.responses and stop.size <= LARGE and any(command != "variables" for command in in_progress):
                return None
            announced, stop.unannounced = stop.unannounced, []
        # After the end of the stop, no more requests are announced, so their responses are useless to the client.
        never_announced = {request["seq"] for request in stop.unannounced}
        responses = [response for response in stop.responses if response["request_seq"] not in never_announced]
        stop.responses, stop.size = [], 0
        if not (announced or responses):
            return None
        body = {"after": stop.after, "requested": announced, "responses": responses}
        return {"seq": 0, "type": "event", "event": PREFETCH_EVENT, "body": body}


@dataclass(eq=False)
class _SetEntry:
    """A template in the prefetch set."""

    template: RequestTemplate
    costly: int = 0
    """Number of slow or large responses in a row."""


@dataclass(eq=False)
class _StopState:
    """The progress of prefetching at one stop."""

    ids: StopIds
    """The known ids of the thread, frame and scopes."""
    remaining: list[_SetEntry]
    """Entries whose requests have not been sent yet."""
    after: int
    """Sequence number of the editor's last request before the stop that may change something."""
    unannounced: list[Request] = field(default_factory=list)
    """Requests that have not been in an event yet."""
    responses: list[Response] = field(default_factory=list)
    """Responses that have not been in an event yet."""
    size: int = 0
    """Total size of these responses in bytes."""


@dataclass(eq=False)
class _PendingRequest:
    """A request without a response."""

    stop: _StopState
    entry: _SetEntry
    request: Request
    sent_at: float
