"""State machine of prefetch at a stop, sans-IO: decides which requests to send to debugpy and what to send the client.

The protocol is defined in `relay_core.dap.prefetch`. The layer reports debugpy's messages to this class and sends the
messages that it returns.

Invariants: requests of the prefetch set are debugpy's normal requests, so a response is never invented; a request that
may change something ends the stop for prefetching, because later responses would be from before or after it; an entry
that is slow or large several times in a row is dropped, because it delays a user who steps on more than it helps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relay_core.dap.messages import Event, Request, Response
from relay_core.dap.prefetch import MAX_PREFETCH_SET, PREFETCH_EVENT, RequestTemplate, StopIds, is_watch

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


@dataclass(frozen=True)
class PrefetchOutput:
    """Messages to send now.

    Attributes:
        requests: Requests for debugpy.
        event: A prefetch event for the client, or None.
    """

    requests: list[Request]
    event: Event | None


class PrefetchEngine:
    """Prefetching for the connection of one debugger."""

    def __init__(self) -> None:
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
    def is_waiting(self) -> bool:
        """Whether prefetch requests are waiting for responses."""
        return bool(self._pending)

    @property
    def is_watching(self) -> bool:
        """Whether watch expressions are waiting for responses."""
        return bool(self._watches)

    def has_requested(self, response: Response) -> bool:
        """Whether a response belongs to a prefetch request."""
        return response["request_seq"] in self._pending

    def replace_set(self, templates: object) -> None:
        """Use a new prefetch set; invalid templates are ignored."""
        found = [RequestTemplate.parse(template) for template in templates] if isinstance(templates, list) else []
        self._set = [_SetEntry(template) for template in found if template][:MAX_PREFETCH_SET]

    def begin_stop(self, thread: int, after: int, now: float) -> PrefetchOutput:
        """Start prefetching for a new stop.

        Args:
            thread: Id of the stopped thread.
            after: Sequence number of the editor's last request before the stop that may change something.
            now: Seconds of a monotonic clock.
        """
        self._ids = StopIds(thread)
        self._watches.clear()
        return self._begin(self._ids, after, now)

    def change_requested(self, request: Request | None) -> None:
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

    def watch_answered(self, response: Response, after: int, now: float) -> PrefetchOutput:
        """Handle the response to a watch expression; after the last one, prefetch again for the same stop.

        Send the event before this response, because the editor's next request follows the response immediately.
        """
        is_of_watch = response["request_seq"] in self._watches
        self._watches.discard(response["request_seq"])
        if not is_of_watch or self._watches or self._ids is None:
            return PrefetchOutput([], None)
        return self._begin(self._ids, after, now)  # its ids stay valid until the process resumes

    def response_received(self, response: Response, size: int, now: float) -> PrefetchOutput:
        """Handle the response, of `size` bytes, to a prefetch request."""
        pending = self._pending.pop(response["request_seq"])
        is_costly = now - pending.sent_at > SLOW or size > LARGE
        pending.entry.costly = pending.entry.costly + 1 if is_costly else 0
        stop, request = pending.stop, pending.request
        stop.responses.append(response)
        stop.size += size
        if response.get("success") is True:
            stop.ids.learn(request["command"], request["arguments"], response.get("body"))
        else:
            stop.remaining.clear()  # the process has resumed
        return self._output(stop, now)

    def _begin(self, ids: StopIds, after: int, now: float) -> PrefetchOutput:
        entries = [entry for entry in self._set if entry.costly < COSTLY_LIMIT]
        self._stop = stop = _StopState(ids, entries, after)
        return self._output(stop, now)

    def _output(self, stop: _StopState, now: float) -> PrefetchOutput:
        requests = self._next_requests(stop, now) if stop is self._stop else []
        return PrefetchOutput(requests, self._next_event(stop))

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
