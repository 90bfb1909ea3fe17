"""A layer that buffers the first bytes from a local program until the peer answers, so that they can be sent again."""

from __future__ import annotations

from collections.abc import Callable

from relay_core.layers.layer import Abort, EndPeer, Layer, Output, ToLocal, ToPeer

__all__ = ["MAX_EARLY_BYTES", "EarlyBytes"]

MAX_EARLY_BYTES = 256 * 1024
"""Maximum number of bytes buffered before the first answer; if there are more, no other stream can be tried."""


class EarlyBytes(Layer):
    """The buffer of one local connection. When started on another stream, it sends the buffered bytes again.

    Args:
        on_committed: Called when the peer has answered or the buffer is full; from then on, the connection stays on
            this stream.
        on_first: Called with the first bytes.
    """

    def __init__(
        self,
        on_committed: Callable[[], None] = lambda: None,
        on_first: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        self.has_stream = False
        """False while the bytes have to wait for a stream, for example for the first one. In this state, the buffer is
        never dropped, and the owner limits its size."""
        self._kept: list[ToPeer] = []
        self._size = 0
        """Number of buffered bytes."""
        self._on_committed = on_committed
        self._on_first = on_first

    def __repr__(self) -> str:
        return f"<EarlyBytes {'committed' if self.is_finished else self._size}>"

    def __len__(self) -> int:
        return self._size

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Send the buffered bytes."""
        outputs: list[Output] = [*self._kept]
        self._commit_if_full()
        return outputs

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Buffer bytes from the local program, and pass them on."""
        if not self.is_finished:
            if not self._kept:
                self._on_first(piece.data)
            self._kept.append(piece)
            self._size += len(piece.data)
            self._commit_if_full()
        return super().receive_local(piece, now)

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass EOF on; if no bytes preceded it, abort the stream instead, because the program expects no answer."""
        if self.is_finished or self._kept:
            return [EndPeer()]
        return [Abort("the local program disconnected before sending anything")]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Pass the answer on, and stop buffering."""
        self._commit()
        return super().receive_peer(piece, now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Pass EOF on; it counts as an answer."""
        self._commit()
        return super().receive_peer_eof(now)

    def _commit_if_full(self) -> None:
        # The bytes are still sent, but they can no longer be sent again on another stream.
        if self.has_stream and self._size >= MAX_EARLY_BYTES:
            self._commit()

    def _commit(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._kept.clear()
            self._size = 0
            self._on_committed()
