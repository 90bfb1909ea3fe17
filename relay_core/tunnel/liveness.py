"""When to ask a silent peer whether it is there, and when to stop believing it.

A PING without a deadline is the most common bug of tunnels: it notices a dead peer when TCP does, many minutes
later. So there are two: `dead_after` seconds of silence, and the shorter one of a probe, which the owner asks for
when the wall clock jumped (a laptop woke up) or the network changed. A verdict that is found `STALL` seconds late says
that our own event loop stood still, so the peer gets a probe first: its bytes may be waiting in our socket.
"""

from __future__ import annotations

from relay_core.tunnel.limits import PROBE_TIMEOUT, STALL, Settings

__all__ = ["Liveness"]


class Liveness:
    """The silence of one transport.

    Args:
        settings: `ping_after` and `dead_after`.
        now: When the transport was attached.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self.ping_due = True
        """A PING should leave; the first one measures the round trip of a fresh transport."""
        self.round_trip = 0.0
        """The shortest one measured on this transport, in seconds."""
        self._ping_after = settings.ping_after
        self._dead_after = settings.dead_after
        self._heard_at = now
        self._asked = True
        """A PING has been asked for since the peer was last heard."""
        self._probe_until: float | None = None
        self._nonce = 0
        self._sent_at = now

    def __repr__(self) -> str:
        return f"<Liveness heard_at={self._heard_at:.3f} probe_until={self._probe_until}>"

    @property
    def deadline(self) -> float:
        """When `check` has something to decide."""
        if not self._asked:
            return self._heard_at + self._ping_after
        return self._dead_at

    @property
    def _dead_at(self) -> float:
        silence = self._heard_at + self._dead_after
        return silence if self._probe_until is None else min(silence, self._probe_until)

    def heard(self, now: float) -> None:
        """Something, anything, was received."""
        self._heard_at = now
        self._asked = False
        self._probe_until = None

    def probe(self, now: float, timeout: float) -> None:
        """Ask the peer now, and give up unless something is heard within `timeout` seconds."""
        self.ping_due = self._asked = True
        self._probe_until = now + timeout

    def check(self, now: float) -> bool:
        """Ask for a PING if it is time; False if the transport is dead."""
        if now >= self._dead_at:
            if now - self._dead_at < STALL:
                return False
            self._heard_at = now
            self.probe(now, PROBE_TIMEOUT)
        elif not self._asked and now >= self._heard_at + self._ping_after:
            self.ping_due = self._asked = True
        return True

    def take_ping(self, now: float) -> int:
        """Return the nonce of the PING that leaves now."""
        self.ping_due = False
        self._nonce += 1
        self._sent_at = now
        return self._nonce

    def pong(self, nonce: int, now: float) -> float | None:
        """Return the round trip in seconds, or None if this answers an older PING."""
        if nonce != self._nonce:
            return None
        seconds = now - self._sent_at
        self.round_trip = min(self.round_trip or seconds, seconds)
        return seconds
