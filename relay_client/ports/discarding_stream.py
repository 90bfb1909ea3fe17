"""The stream of a connection that is waiting for a target: it discards the bytes, because a layer has kept them."""

from __future__ import annotations

from relay_core.net.streams.bridge import PeerHandler

__all__ = ["DiscardingStream"]

MAX_SENT = 64 * 1024
"""Number of bytes after which the sender is paused; an editor sends a few hundred before it receives an answer."""


class DiscardingStream:
    """A `PeerStream` without a peer."""

    def __init__(self) -> None:
        self._handler: PeerHandler | None = None
        self._sent = 0

    def __repr__(self) -> str:
        return f"<DiscardingStream sent={self._sent}>"

    def deliver_to(self, handler: PeerHandler) -> None:
        """Set the handler, which is paused once it has sent `MAX_SENT` bytes."""
        self._handler = handler
        self.send(b"")

    def detach(self) -> None:
        """Remove the handler."""
        self._handler = None

    def send(self, data: bytes) -> None:
        """Discard bytes."""
        self._sent += len(data)
        if self._sent >= MAX_SENT and self._handler is not None:
            self._handler.peer_writing_paused()

    def send_eof(self) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def abort(self, reason: str = "") -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
