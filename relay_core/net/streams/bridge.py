"""Bridge between a local connection and a stream to the peer, through layers, with back-pressure in both directions.

    LocalSide --local_*--> Bridge --> layers --> ToPeer  --> PeerStream.send
    LocalSide <--write---  Bridge <-- layers <-- peer_*  <-- PeerStream

All bytes between a local socket and a tunnel take this path within one turn of the event loop. If one side
accepts less than the other sends, the bridge pauses reading from the other, so memory usage is bounded. EOF ends one
direction only; if one side is lost, the other is aborted.

Why callbacks and not two tasks that copy in a loop: a task switch on each side was a measurable part of a round trip
(`relay_core.net.session.driver` has the figures), and a layer that answers one side may have to send to the other,
which two independent loops can do only through a queue. With one call for each event, the outputs are in order in both
directions.

Why the bridge closes nothing: a local connection can have several streams, one after another, while it waits for its
target. So `run` leaves the local side as it is and reports why the transfer has ended; `carry_bytes` is for the owners
that have one stream only.

Invariant: no exception of a layer reaches the caller of an event. That caller is the driver of a whole session, whose
other streams must not end with this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, Output, ResetLocal, ToLocal, ToPeer
from relay_core.layers.stack import LayerStack
from relay_core.net.streams.local_endpoint import LocalSide
from relay_core.net.tasks import DeadlineTimer

logger = logging.getLogger(__name__)


# Interfaces of a stream to the peer, between the tunnel that carries it and the code that uses it.
#
# A stream carries the bytes of one TCP connection to the other side; `relay_core.net.session.stream` implements it for
# tunnel sessions. There are two interfaces:
#
#   * `PeerStream` pushes: a handler is called with bytes as they arrive, in the same turn of the event loop, and a pair
#     of calls signals back-pressure. All bytes of local sockets take this path (`relay_core.net.streams.bridge`).
#   * `ByteStream` is pulled with `read` and `write`, for code that sends a request and waits for the response.


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


LOCAL_NAME = "the local connection"


@dataclass
class Traffic:
    """Byte counts of one local connection."""

    sent: int = 0
    """Read from the local program."""
    received: int = 0
    """Written to the local program."""


async def carry_bytes(
    local: LocalSide,
    peer: PeerStream,
    layers: Iterable[Layer] = (),
    *,
    traffic: Traffic | None = None,
    first: bytes = b"",
    local_name: str = LOCAL_NAME,
) -> None:
    """Carry bytes until both directions have ended; close both sides in any case.

    Args:
        local: The local connection.
        peer: The stream to the peer.
        layers: The layers between the two; the first one is next to the local program.
        traffic: Receives the byte counts, even if this raises.
        first: Bytes from the peer that the caller has already read from the stream.
        local_name: Name of the local connection in the error that the peer receives if the connection fails.

    Raises:
        ConnectionLost: the stream broke (the local connection is then reset, so that the program sees an error), or the
            local connection failed (the stream is then aborted).
    """
    try:
        await Bridge(local, peer, LayerStack(layers), traffic=traffic, local_name=local_name).run(first)
        await peer.close()
    except BaseException as error:
        peer.abort(error.sentence if isinstance(error, ConnectionLost) else "")
        local.abort()  # not `close`, which would wait until the program has read everything; that may never happen
        raise
    finally:
        await local.close()


class Bridge:
    """Carries bytes between two open sides; the caller closes them.

    Args:
        local: The local connection.
        peer: The stream to the peer.
        layers: The layers between them.
        traffic: Receives the byte counts.
        local_name: As in `carry_bytes`.
    """

    def __init__(
        self,
        local: LocalSide,
        peer: PeerStream,
        layers: LayerStack,
        *,
        traffic: Traffic | None = None,
        local_name: str = LOCAL_NAME,
    ) -> None:
        self.traffic = traffic or Traffic()
        self._local = local
        self._local_name = local_name
        self._peer = peer
        self._layers = layers
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._over = asyncio.Event()
        self._error: ConnectionLost | None = None
        """The error that ended the transfer, if any."""
        self._timer = DeadlineTimer(self.refresh)
        self._peer_error = ConnectionLost("the stream broke")
        self._local_ended = self._peer_ended = False
        """True if EOF was sent to that side."""

    async def run(self, first: bytes = b"") -> None:
        """Carry bytes until both directions have ended.

        Args:
            first: Bytes from the peer that the caller has already read from the stream.

        Raises:
            ConnectionLost: either side failed; the local connection is left unchanged.
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
            self._timer.cancel()
        if self._error is not None:
            raise self._error

    def refresh(self) -> None:
        """Let the layers act on a change in their state, or on a deadline."""
        if not self._is_over:
            self._pass(self._layers.tick)

    # Called by the local connection:

    def local_data(self, data: bytes) -> None:
        """Pass bytes on to the peer."""
        self.traffic.sent += len(data)
        if self._layers:
            self._pass(self._layers.receive_local, data)
        else:
            self._peer.send(data)

    def local_eof(self) -> None:
        """Pass EOF on to the peer."""
        self._pass(self._layers.receive_local_eof)

    def local_lost(self, error: Exception | None) -> None:
        """Finish with an error, because the local connection is closed in both directions."""
        why = getattr(error, "strerror", None) or type(error).__name__ if error else "it was closed"
        self._finish(ConnectionLost(f"{self._local_name} failed: {why}"))

    def local_writing_paused(self) -> None:
        """Stop reading from the peer until the local program catches up."""
        self._peer.pause_reading()

    def local_writing_resumed(self) -> None:
        """Continue to read from the peer."""
        self._peer.resume_reading()

    # Called by the stream:

    def peer_data(self, data: bytes) -> None:
        """Pass bytes on to the local program."""
        if self._layers:
            self._pass(self._layers.receive_peer, data)
        else:
            self.traffic.received += len(data)
            self._local.write(data)

    def peer_eof(self) -> None:
        """Pass EOF on to the local program."""
        self._pass(self._layers.receive_peer_eof)

    def peer_lost(self, error: ConnectionLost) -> None:
        """Finish with the error, unless a layer delays that."""
        self._peer_error = error
        self._pass(self._layers.receive_peer_lost)

    def peer_writing_paused(self) -> None:
        """Stop reading from the local program until the stream catches up."""
        self._local.pause_reading()

    def peer_writing_resumed(self) -> None:
        """Continue to read from the local program."""
        self._local.resume_reading()

    # Layers:

    def _pass(self, receive: Callable[..., list[Output]], *data: bytes) -> None:
        """Call the layers with an event, and execute the outputs that they return."""
        try:
            outputs = receive(*data, self._loop.time())
        except Exception:
            # The caller is the driver of a session; an exception here would end its other streams too.
            logger.exception("closing a connection because of an internal error in %r", self._layers)
            self._finish(ConnectionLost("the connection was closed because of an internal error in relay-debug"))
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
        if self._layers and not self._is_over:
            self._timer.set(self._layers.next_deadline())

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
