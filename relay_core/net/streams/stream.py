"""The seam between what carries bytes and what uses them.

A `ByteStream` is one TCP connection's worth of bytes on its way to the other side: a stream inside a tunnel session
(`relay_core.net.session.stream`), or a rendezvous websocket (`relay_core.net.rendezvous`). The pump, the agent and the
client know only this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["ByteStream", "DirectStream"]


class ByteStream(Protocol):
    """A reliable, ordered, bidirectional stream of bytes with back-pressure."""

    async def read(self) -> bytes:
        """Return the next bytes, at least one, or b"" once the peer has ended its direction.

        Safe to cancel while nothing has arrived; nothing is lost then.

        Raises:
            ConnectionLost: the stream broke; what was read before is all there will be.
        """

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when the carrier can take more.

        Raises:
            ConnectionLost: the stream broke.
        """

    async def write_eof(self) -> None:
        """End this direction and keep reading, where the carrier can do that; see `close` where it cannot."""

    async def close(self) -> None:
        """End both directions in order: what was written is delivered."""

    def abort(self, reason: str = "") -> None:
        """Drop the stream at once; the peer sees a broken connection, not an end, and the reason if it can be told."""


class DirectStream(ByteStream, Protocol):
    """A stream that can do without a task for each direction while there is nothing to wait for.

    A task costs two turns of the event loop for each message: one to wake it, one to let it wait again. A carrier that
    cannot do better takes nothing and offers nothing; then the tasks do it all.
    """

    def write_some(self, data: bytes) -> int:
        """Send what can be sent without waiting, and return how many bytes that was."""

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer what arrives while somebody waits in `read`: `read` does not return what `take` has taken.

        Args:
            take: Takes all or nothing, and says which; `take(b"")` says whether it would take anything.
        """
