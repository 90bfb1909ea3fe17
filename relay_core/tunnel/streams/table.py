"""The live streams of a session, their numbers, and the limits on opening them."""

from __future__ import annotations

from relay_core.tunnel.limits import MAX_STREAM_ID, OPEN_RATE, Limits, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Role, StreamLimitReached
from relay_core.tunnel.streams.stream import Stream

__all__ = ["StreamTable"]


class StreamTable:
    """The live streams of one session.

    The client uses the numbers 1, 3, 5, ... and the agent 2, 4, 6, ..., each only once. A frame with the number of a
    closed stream is late and ignored; a frame with a number that was never used is a protocol violation.

    Args:
        role: This side's role.
        settings: This side's limits, and the size of each send queue.
        peer: The peer's limits.
        now: Monotonic seconds.
    """

    def __init__(self, role: Role, *, settings: Settings, peer: Limits, now: float) -> None:
        self._local = settings.limits
        self._peer = peer
        self._queue_limit = settings.send_queue
        self._live: dict[int, Stream] = {}
        self._next_id = 1 if role is Role.CLIENT else 2
        self._last_peer_id = self._next_id % 2 - 1  # two below the peer's first number
        self._incoming = 0
        self._tokens = float(self._local.max_streams)
        self._refilled_at = now

    def __len__(self) -> int:
        return len(self._live)

    def __repr__(self) -> str:
        return f"<StreamTable {len(self._live)} live, {self._incoming} of them incoming>"

    def get(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None if it is closed.

        Raises:
            ProtocolBreach: The stream never existed.
        """
        stream = self._live.get(stream_id)
        if stream is None:
            ours = stream_id % 2 == self._next_id % 2
            if not 0 < stream_id <= (self._next_id - 2 if ours else self._last_peer_id):
                raise ProtocolBreach(Breach.UNKNOWN_STREAM, str(stream_id))
        return stream

    def find(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None; for the owner, whose calls may come after the stream was closed."""
        return self._live.get(stream_id)

    def open(self) -> Stream:
        """Add a stream that this side opens.

        Raises:
            StreamLimitReached: The peer's limit on open streams has been reached, or all numbers are used.
        """
        # Each side limits the streams that the other side opens, so only the streams that this side opened count here.
        if len(self._live) - self._incoming >= self._peer.max_streams or self._next_id > MAX_STREAM_ID:
            raise StreamLimitReached(f"the peer accepts at most {self._peer.max_streams} connections at a time")
        stream = self._add(self._next_id, incoming=False)
        # A number is used only once, so that late frames of a closed stream cannot reach a newer one.
        self._next_id += 2
        return stream

    def admit(self, stream_id: int, now: float) -> Stream | None:
        """Add a stream that the peer opens; return None if it opens too many or too fast.

        Raises:
            ProtocolBreach: The number belongs to this side or was used before.
        """
        if stream_id % 2 == self._next_id % 2 or stream_id <= self._last_peer_id:
            raise ProtocolBreach(Breach.STREAM_ID, str(stream_id))
        self._last_peer_id = stream_id  # also for a refused stream: its number is used, and its RST refers to it
        # A token bucket (see OPEN_RATE) that holds at most one burst.
        refill = (now - self._refilled_at) * OPEN_RATE
        self._tokens = min(float(self._local.max_streams), self._tokens + refill)
        self._refilled_at = now
        if self._incoming >= self._local.max_streams or self._tokens < 1.0:
            return None
        self._tokens -= 1.0
        self._incoming += 1
        return self._add(stream_id, incoming=True)

    def remove(self, stream: Stream) -> None:
        """Remove a stream that is finished or reset."""
        del self._live[stream.id]
        if stream.incoming:
            self._incoming -= 1

    def clear(self) -> list[Stream]:
        """Remove all streams and return them."""
        streams = list(self._live.values())
        self._live.clear()
        self._incoming = 0
        return streams

    def _add(self, stream_id: int, *, incoming: bool) -> Stream:
        stream = Stream(
            stream_id,
            incoming=incoming,
            window=self._local.window,
            credit=self._peer.window,
            queue_limit=self._queue_limit,
        )
        self._live[stream_id] = stream
        return stream
