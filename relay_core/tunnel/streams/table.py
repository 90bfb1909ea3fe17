"""Which streams exist: their numbers, how many there may be, and how fast they may be opened."""

from __future__ import annotations

from relay_core.tunnel.limits import MAX_STREAM_ID, OPEN_RATE, Limits, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Role, StreamLimitReached
from relay_core.tunnel.streams.stream import Stream

__all__ = ["StreamTable"]


class StreamTable:
    """The live streams of one session.

    A number is used once: the client counts 1, 3, 5, the agent 2, 4, 6. So a frame for a number that has been used
    and is not live any more is late, and a frame for any other number is a breach.

    Args:
        role: Which end this is.
        settings: What this side announced, and the size of each stream's queue.
        peer: What the peer announced.
        now: Monotonic seconds.
    """

    def __init__(self, role: Role, *, settings: Settings, peer: Limits, now: float) -> None:
        self._local = settings.limits
        self._peer = peer
        self._queue_limit = settings.send_queue
        self._live: dict[int, Stream] = {}
        self._next_id = 1 if role is Role.CLIENT else 2
        self._last_peer_id = self._next_id % 2 - 1  # one step of two before the peer's first number
        self._incoming = 0
        self._tokens = float(self._local.max_streams)
        self._refilled_at = now

    def __len__(self) -> int:
        return len(self._live)

    def __repr__(self) -> str:
        return f"<StreamTable {len(self._live)} live, {self._incoming} of them incoming>"

    def get(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None for one that is gone.

        Raises:
            ProtocolBreach: it never existed.
        """
        stream = self._live.get(stream_id)
        if stream is None:
            ours = stream_id % 2 == self._next_id % 2
            if not 0 < stream_id <= (self._next_id - 2 if ours else self._last_peer_id):
                raise ProtocolBreach(Breach.UNKNOWN_STREAM, str(stream_id))
        return stream

    def find(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None; for the owner, who may be late too."""
        return self._live.get(stream_id)

    def open(self) -> Stream:
        """Begin a stream of ours.

        Raises:
            StreamLimitReached: as many are open as the peer takes, or the numbers are used up.
        """
        if len(self._live) - self._incoming >= self._peer.max_streams or self._next_id > MAX_STREAM_ID:
            raise StreamLimitReached(f"the other side takes {self._peer.max_streams} connections at a time")
        stream = self._add(self._next_id, incoming=False)
        self._next_id += 2
        return stream

    def admit(self, stream_id: int, now: float) -> Stream | None:
        """Begin a stream of the peer; None if it opens more or faster than it may.

        Raises:
            ProtocolBreach: the number is not the peer's to use, or was used before.
        """
        if stream_id % 2 == self._next_id % 2 or stream_id <= self._last_peer_id:
            raise ProtocolBreach(Breach.STREAM_ID, str(stream_id))
        self._last_peer_id = stream_id
        refill = (now - self._refilled_at) * OPEN_RATE
        self._tokens = min(float(self._local.max_streams), self._tokens + refill)
        self._refilled_at = now
        if self._incoming >= self._local.max_streams or self._tokens < 1.0:
            return None
        self._tokens -= 1.0
        self._incoming += 1
        return self._add(stream_id, incoming=True)

    def remove(self, stream: Stream) -> None:
        """Forget a stream that is finished or reset."""
        del self._live[stream.id]
        if stream.incoming:
            self._incoming -= 1

    def clear(self) -> list[Stream]:
        """Forget all streams and return them."""
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
