"""The seam between what carries bytes to the peer and what uses them.

A stream is one TCP connection's worth of bytes on its way to the other side, such as a stream of a tunnel session
(`relay_core.net.session.stream`). It has two faces:

  * `PeerStream` pushes: bytes are handed over as they come, in the same turn of the event loop, and back-pressure is a
    pair of calls. All bytes between a local socket and the peer take this way (`relay_core.net.streams.bridge`).
  * `ByteStream` is pulled: for those who send a request and wait for its answer.
"""

from __future__ import annotations

from typing import Protocol

from relay_core.errors import ConnectionLost

__all__ = ["ByteStream", "PeerHandler", "PeerStream"]


class PeerHandler(Protocol):
    """Is given what happens on a stream; must not raise."""

    def peer_data(self, data: bytes) -> None:
        """Take bytes of the peer, at least one."""

    def peer_eof(self) -> None:
        """The peer has ended its direction; there will be no more bytes."""

    def peer_lost(self, error: ConnectionLost) -> None:
        """The stream is gone, in both directions; nothing else will be called."""

    def peer_writing_paused(self) -> None:
        """The stream takes more than it can send on: send it nothing else for now."""

    def peer_writing_resumed(self) -> None:
        """The stream can send on again."""


class PeerStream(Protocol):
    """A reliable, ordered, bidirectional stream of bytes with back-pressure, which pushes."""

    def deliver_to(self, handler: PeerHandler) -> None:
        """Hand over what has come so far, and from now on what comes, as it comes."""

    def detach(self) -> None:
        """Keep what comes for the next handler, or for `read`."""

    def send(self, data: bytes) -> None:
        """Send bytes, or drop them if the stream is lost; what cannot leave is kept, and the handler is paused."""

    def send_eof(self) -> None:
        """End this direction behind what was sent; the other one stays open."""

    def pause_reading(self) -> None:
        """Hand over nothing until `resume_reading`; the peer is slowed down once its window is full."""

    def resume_reading(self) -> None:
        """Hand over what has come meanwhile, and what comes."""

    def abort(self, reason: str = "") -> None:
        """Drop the stream at once: the peer sees a broken connection, and the reason if the carrier can send one."""

    async def close(self) -> None:
        """End both directions in order: what was sent is delivered, what still comes is dropped."""


class ByteStream(Protocol):
    """A reliable, ordered, bidirectional stream of bytes with back-pressure, which is pulled."""

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
        """Drop the stream at once: the peer sees a broken connection, and the reason if the carrier can send one."""
