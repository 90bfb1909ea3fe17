"""Joins a local connection and a stream to the peer, through layers, with back-pressure both ways.

    LocalEndpoint --local_*--> Bridge --> layers --> ToPeer  --> PeerStream.send
    LocalEndpoint <--write---  Bridge <-- layers <-- peer_*  <-- PeerStream

This is the one way for a byte between a local socket and a tunnel: it is pushed from end to end in one turn of the
event loop. A side that takes less than it is given pauses the reading of the other, so memory stays bounded. EOF is
passed on and the other direction stays open; a side that is lost ends the other without an orderly end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from relay_core.errors import ConnectionLost
from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, Output, ResetLocal, ToLocal, ToPeer
from relay_core.layers.stack import LayerStack
from relay_core.net.streams.endpoint import LocalEndpoint
from relay_core.net.streams.stream import PeerStream

__all__ = ["Bridge", "Traffic", "carry_bytes"]

logger = logging.getLogger(__name__)


@dataclass
class Traffic:
    """Bytes of one local connection."""

    sent: int = 0
    """Read from the local program."""
    received: int = 0
    """Written to the local program."""


async def carry_bytes(
    local: LocalEndpoint,
    peer: PeerStream,
    layers: Iterable[Layer] = (),
    *,
    traffic: Traffic | None = None,
    first: bytes = b"",
) -> None:
    """Carry bytes until both directions have ended; always leaves both sides closed.

    Args:
        local: The local connection.
        peer: The other side.
        layers: What stands between them, the first one next to the local program.
        traffic: Counts what is carried, also when it ends in an error.
        first: Bytes of the peer that were taken from the stream already.

    Raises:
        ConnectionLost: the stream broke (the local connection is reset, so that its user sees it too), or the local
            connection broke (the stream is aborted).
    """
    try:
        await Bridge(local, peer, layers, traffic=traffic).run(first)
        await peer.close()
    except BaseException:
        peer.abort()
        local.abort()  # a close would wait for a reader that may never read
        raise
    finally:
        await local.close()


class Bridge:
    """Carries bytes between two sides that are open, and leaves it to others to close them.

    Args:
        local: The local connection.
        peer: The other side.
        layers: As in `carry_bytes`.
        traffic: Counts what is carried.
    """

    def __init__(
        self, local: LocalEndpoint, peer: PeerStream, layers: Iterable[Layer] = (), *, traffic: Traffic | None = None
    ) -> None:
        self.traffic = traffic or Traffic()
        self._local = local
        self._peer = peer
        self._layers = LayerStack(layers)
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._over = asyncio.Event()
        self._error: ConnectionLost | None = None
        """Why it is over, if that was an error."""
        self._timer: asyncio.TimerHandle | None = None
        self._peer_error = ConnectionLost("the stream broke")
        self._local_ended = self._peer_ended = False
        """EOF was passed on to that side."""

    def __repr__(self) -> str:
        return f"<Bridge {self._local!r} {self._peer!r} {self._layers!r}>"

    async def run(self, first: bytes = b"") -> None:
        """Carry until both directions have ended.

        Args:
            first: Bytes of the peer that were taken from the stream already.

        Raises:
            ConnectionLost: either side broke; the local connection is still as it was.
        """
        try:
            self._pass(self._layers.start)
            if first:
                self.peer_data(first)
            self._local.deliver_to(self)
            if not self._is_over:
                self._peer.deliver_to(self)
            await self._over.wait()
        finally:
            self._local.detach()
            self._peer.detach()
            if self._timer is not None:
                self._timer.cancel()
        if self._error is not None:
            raise self._error

    # What the local connection does:

    def local_data(self, data: bytes) -> None:
        """Pass bytes on to the peer."""
        self.traffic.sent += len(data)
        if self._layers:
            self._pass(self._layers.receive_local, data)
        else:
            self._peer.send(data)

    def local_eof(self) -> None:
        """Pass the end on to the peer."""
        self._pass(self._layers.receive_local_eof)

    def local_lost(self, error: Exception | None) -> None:
        """Give up: there is nobody left to carry for."""
        why = getattr(error, "strerror", None) or type(error).__name__ if error else "it was closed"
        self._finish(ConnectionLost(f"the local connection broke: {why}"))

    def local_writing_paused(self) -> None:
        """Let the peer wait for the local program."""
        self._peer.pause_reading()

    def local_writing_resumed(self) -> None:
        """Let the peer continue."""
        self._peer.resume_reading()

    # What the stream does:

    def peer_data(self, data: bytes) -> None:
        """Pass bytes on to the local program."""
        if self._layers:
            self._pass(self._layers.receive_peer, data)
        else:
            self.traffic.received += len(data)
            self._local.write(data)

    def peer_eof(self) -> None:
        """Pass the end on to the local program."""
        self._pass(self._layers.receive_peer_eof)

    def peer_lost(self, error: ConnectionLost) -> None:
        """Give up, unless a layer has a reason to wait."""
        self._peer_error = error
        self._pass(self._layers.receive_peer_lost)

    def peer_writing_paused(self) -> None:
        """Let the local program wait for the peer."""
        self._local.pause_reading()

    def peer_writing_resumed(self) -> None:
        """Let the local program continue."""
        self._local.resume_reading()

    # What the layers want:

    def _pass(self, receive: Callable[..., list[Output]], *data: bytes) -> None:
        """Let the layers receive something, and do what they return."""
        try:
            outputs = receive(*data, self._loop.time())
        except Exception:
            # This is called from the driver of a session, whose other streams must not suffer.
            logger.exception("a connection ends because of a defect in %r", self._layers)
            self._finish(ConnectionLost("a defect in relay-debug ended the connection"))
            return
        for output in outputs:
            if self._is_over:
                return
            if isinstance(output, ToLocal):
                self.traffic.received += len(output.data)
                self._local.write(output.data)
            elif isinstance(output, ToPeer):
                self._peer.send(output.data)
            else:
                self._end(output)
        if self._layers:
            self._arm()

    def _end(self, output: Output) -> None:
        if isinstance(output, EndLocal):
            self._local_ended = True
            self._local.write_eof()
        elif isinstance(output, EndPeer):
            self._peer_ended = True
            self._peer.send_eof()
        elif isinstance(output, ResetLocal):
            self._finish(self._peer_error)
        elif isinstance(output, Abort):
            self._finish(ConnectionLost(output.reason))
            self._peer.abort(output.reason)
        if self._local_ended and self._peer_ended:
            self._finish(None)

    def _finish(self, error: ConnectionLost | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._over.set()

    def _arm(self) -> None:
        """Have the layers ticked at their next deadline; a timer that is early only looks again."""
        deadline = self._layers.next_deadline()
        if deadline is None or self._is_over:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._pass(self._layers.tick)
