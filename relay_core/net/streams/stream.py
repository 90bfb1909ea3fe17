"""Interfaces of a stream to the peer, between the tunnel that carries it and the code that uses it.

A stream carries the bytes of one TCP connection to the other side; `relay_core.net.session.stream` implements it for
tunnel sessions. There are two interfaces:

  * `PeerStream` pushes: a handler is called with bytes as they arrive, in the same turn of the event loop, and a pair
    of calls signals back-pressure. All bytes of local sockets take this path (`relay_core.net.streams.bridge`).
  * `ByteStream` is pulled with `read` and `write`, for code that sends a request and waits for the response.
"""

from __future__ import annotations

from typing import Protocol

from relay_core.errors import ConnectionLost

__all__ = ["ByteStream", "PeerHandler", "PeerStream"]


class PeerHandler(Protocol):
    """Receives the events of a stream; its methods must not raise."""

    def peer_data(self, data: bytes) -> None:
        """Handle one or more bytes from the peer."""

    def peer_eof(self) -> None:
        """Handle the end of the peer's direction; no more bytes follow."""

    def peer_lost(self, error: ConnectionLost) -> None:
        """Handle the loss of the stream in both directions; no other method is called after this."""

    def peer_writing_paused(self) -> None:
        """Stop sending: the stream has more bytes queued than it can send now."""

    def peer_writing_resumed(self) -> None:
        """Continue sending: the queue of the stream is empty."""


class PeerStream(Protocol):
    """A reliable, ordered, bidirectional byte stream with back-pressure that calls a handler."""

    def deliver_to(self, handler: PeerHandler) -> None:
        """Pass the buffered bytes to the handler, and from now on bytes as they arrive."""

    def detach(self) -> None:
        """Remove the handler; buffer received bytes for the next one, or for `read`."""

    def send(self, data: bytes) -> None:
        """Send bytes, or drop them if the stream is lost; queue what cannot be sent yet, and pause the handler."""

    def send_eof(self) -> None:
        """End this direction after the bytes sent so far; the other direction stays open."""

    def pause_reading(self) -> None:
        """Buffer received bytes until `resume_reading`; the peer stops sending when its window is used up."""

    def resume_reading(self) -> None:
        """Pass the buffered bytes to the handler, and continue to do so."""

    def abort(self, reason: str = "") -> None:
        """Drop the stream immediately: the peer sees a broken connection, and the reason if it can be transmitted."""

    async def close(self) -> None:
        """End both directions gracefully: sent bytes are delivered; bytes that still arrive are discarded."""


class ByteStream(Protocol):
    """A reliable, ordered, bidirectional byte stream with back-pressure that is read with `read`."""

    async def read(self) -> bytes:
        """Return the next bytes, at least one, or b"" after the peer has ended its direction.

        Cancellation loses no data.

        Raises:
            ConnectionLost: the stream broke; no more bytes follow.
        """

    async def write(self, data: bytes) -> None:
        """Send bytes; return when the stream accepts more.

        Raises:
            ConnectionLost: the stream broke.
        """

    async def write_eof(self) -> None:
        """End this direction and keep the other direction open; if the transport cannot do that, use `close`."""

    async def close(self) -> None:
        """End both directions gracefully: written bytes are delivered."""

    def abort(self, reason: str = "") -> None:
        """Drop the stream immediately: the peer sees a broken connection, and the reason if it can be transmitted."""
