"""Detection of dead transports: PING after silence, and deadlines for the peer's response.

A PING without a deadline is a common bug in tunnels: a dead peer is then detected only when TCP times out, many minutes
later. This class has two deadlines: `dead_after` seconds without received data, and the shorter deadline of a probe.
The owner starts a probe when the wall clock has jumped (a laptop woke up) or the network has changed.

Any received bytes count as an answer, not only the PONG: behind a bulk transfer a PONG can be late on a path that
works, and a transport is given up only if nothing at all arrives. The WebSocket below has pings as well, but only as
far as the relay: they say nothing about the peer, and cannot replace this class.

Ugly: after its own event loop was blocked (a suspended process, a swapping machine), this side cannot distinguish a
dead peer from bytes that it has not read, so a late deadline only starts a probe. A dead peer is then found
`PROBE_TIMEOUT` later than the settings promise; the alternative, giving up a transport that works, costs every stream a
resume.
"""

from __future__ import annotations

from relay_core.tunnel.limits import PROBE_TIMEOUT, STALL, Settings


class Liveness:
    """Liveness of one transport.

    Args:
        settings: `ping_after` and `dead_after`.
        now: Time at which the transport was attached.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self.ping_due = True
        """True if a PING should be sent. The first one measures the round trip of the new transport."""
        self.round_trip = 0.0
        """Shortest round trip measured on this transport, in seconds; 0 if unknown."""
        self._ping_after = settings.ping_after
        self._dead_after = settings.dead_after
        self._last_received = now
        self._ping_requested = True
        """True if a PING was requested since data was last received."""
        self._probe_until: float | None = None
        self._nonce = 0
        self._sent_at = now

    @property
    def deadline(self) -> float:
        """Time of the next call of `check`."""
        if not self._ping_requested:
            return self._last_received + self._ping_after
        return self._dead_at

    @property
    def _dead_at(self) -> float:
        silence = self._last_received + self._dead_after
        return silence if self._probe_until is None else min(silence, self._probe_until)

    def data_received(self, now: float) -> None:
        """Record that data was received; any bytes prove that the peer is alive, not only a PONG."""
        self._last_received = now
        self._ping_requested = False
        self._probe_until = None

    def probe(self, now: float, timeout: float) -> None:
        """Request a PING now; the transport is dead if no data is received within `timeout` seconds."""
        self.ping_due = self._ping_requested = True
        self._probe_until = now + timeout

    def check(self, now: float) -> bool:
        """Request a PING if one is due; return False if the transport is dead."""
        if now >= self._dead_at:
            if now - self._dead_at < STALL:
                return False
            # The deadline is processed so late that this side's event loop must have been blocked. Received data may
            # still be in the socket, so the peer gets another chance.
            self._last_received = now
            self.probe(now, PROBE_TIMEOUT)
        elif not self._ping_requested and now >= self._last_received + self._ping_after:
            self.ping_due = self._ping_requested = True
        return True

    def take_ping(self, now: float) -> int:
        """Return the nonce for a PING that is sent now."""
        self.ping_due = False
        # A counter is enough, because it only distinguishes the awaited PONG from older ones; the handshake has
        # authenticated the peer.
        self._nonce += 1
        self._sent_at = now
        return self._nonce

    def pong(self, nonce: int, now: float) -> float | None:
        """Return the round trip in seconds, or None if this is the response to an older PING."""
        if nonce != self._nonce:
            return None
        seconds = now - self._sent_at
        # The minimum, because PONGs queue behind data in the relay; higher values measure load, not the path.
        self.round_trip = min(self.round_trip or seconds, seconds)
        return seconds
