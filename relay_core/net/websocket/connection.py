"""Client end of an open WebSocket on an asyncio transport: the driver of the state machine in `relay_core.ws.machine`.

It reads into one buffer and returns everything that has arrived, so that the owner wakes up once for many frames. It
sends each message as one frame in one write. The owner either calls `receive` or registers a callback, which saves a
turn of the event loop. Back-pressure works in both directions: reading is paused while more than `UNREAD_HIGH` bytes
are unread, and `send` waits while more than `WRITE_HIGH` bytes are in the transport's write buffer.

The connection is a `BufferedProtocol` because `Protocol` makes asyncio allocate each read, and all connections of a
process share one buffer: nothing is kept in it between two calls. Therefore whatever the machine returns must own its
bytes. Two ways to receive remain: the tunnel uses the callback, and control channels, which wait for whole messages and
are not fast, await `receive`. A limit on messages exists only there, because a stream has none.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections import deque
from collections.abc import Callable, Collection

from relay_core.errors import ConnectionLost
from relay_core.net.memory import shared_read_buffer
from relay_core.net.tasks import first_completed
from relay_core.ws.frames import BINARY, CONTINUATION, TEXT, Chunk, Close, Violation, close_payload
from relay_core.ws.machine import WebSocketMachine

PING_INTERVAL = 20.0
PING_TIMEOUT = 20.0
"""Seconds; load balancers drop idle TCP connections after about 4 minutes."""
CLOSE_TIMEOUT = 5.0
"""Seconds for the peer's Close, and for the server to close the TCP connection after it (RFC 6455, section 7.1.1)."""
UNREAD_HIGH = 256 * 1024
CHUNK_COST = 128
"""Memory overhead of a chunk in bytes; it is counted too, because a peer can send millions of empty chunks."""
MAX_MESSAGE = 1024 * 1024
"""Default maximum size in bytes of a message that `receive` returns; the tunnel does not use `receive`."""
WRITE_HIGH = 256 * 1024


class WebSocket(asyncio.BufferedProtocol):
    """An open WebSocket, client side.

    Args:
        transport: A connection after the opening handshake; this object becomes its protocol.
        subprotocol: The subprotocol that both sides agreed on, or None.
        early: Bytes that were received after the handshake's response.
    """

    def __init__(self, transport: asyncio.Transport, *, subprotocol: str | None = None, early: bytes = b"") -> None:
        self.subprotocol = subprotocol
        """The subprotocol that both sides agreed on, or None."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._buffer = shared_read_buffer()
        self._machine = WebSocketMachine(
            now=self._loop.time(),
            ping_interval=PING_INTERVAL,
            ping_timeout=PING_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            new_mask=functools.partial(os.urandom, 4),
        )
        self._chunks: deque[Chunk] = deque()
        self._unread = 0
        """Bytes that `_chunks` occupies."""
        self._message: bytearray | None = None
        """The received part of a message that `receive` is collecting."""
        self._message_opcode = BINARY
        self._deliver: Callable[[bytes], None] | None = None
        self._on_lost: Callable[[ConnectionLost], None] | None = None
        self._reading_paused = False
        self._has_failed = False
        """True if this side has closed the WebSocket because of the peer's violation or silence."""
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        transport.set_protocol(self)
        self._received(memoryview(early))
        if transport.is_closing():  # closed before `set_protocol`: asyncio will not call this
            self.connection_lost(None)

    # Called by the owner:

    async def receive(self, *, limit: int = MAX_MESSAGE) -> str | bytes:
        """Return the next complete message; safe to cancel.

        Args:
            limit: Maximum payload of the message. It is checked with each piece, so that an endless message is refused
                (close code 1009) before it uses more memory than `limit`.

        Raises:
            ConnectionLost: the WebSocket is closed; its `code` is 1000 after an orderly close.
        """
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._taken(_cost(chunk))
                self._collect(chunk, limit)
                if chunk.fin:
                    return self._finish_message()
            await self.until_readable()

    async def receive_part(self) -> tuple[bytes, bool]:
        """Return the next part of a message, and whether it is the last one; for messages that are processed in parts.

        Raises:
            ConnectionLost: as in `receive`.
        """
        while not self._chunks:
            await self.until_readable()
        chunk = self._chunks.popleft()
        self._taken(_cost(chunk))
        return chunk.payload, chunk.fin

    async def receive_chunk(self) -> bytes:
        """Return all bytes that have arrived, for streams that ignore message boundaries.

        Never returns b"": empty messages are skipped. Safe to cancel.

        Raises:
            ConnectionLost: as in `receive`.
        """
        while True:
            if data := self._take_chunks():
                return data
            await self.until_readable()

    async def until_readable(self) -> None:
        """Wait for bytes to receive.

        Raises:
            ConnectionLost: as in `receive`.
        """
        if self._chunks:
            return
        if self._gone.is_set():
            raise self._lost()
        self._readable.clear()
        await self._readable.wait()

    def deliver_to(self, receiver: Callable[[bytes], None], *, lost: Callable[[ConnectionLost], None]) -> None:
        """Call `receiver` with the bytes that have arrived and will arrive, as `receive_chunk` returns them.

        Args:
            receiver: Must accept all data, and must not raise.
            lost: Called once, when the WebSocket is closed.
        """
        self._deliver, self._on_lost = receiver, lost
        if data := self._take_chunks():
            receiver(data)
        if self._gone.is_set():
            lost(self._lost())

    @property
    def has_room(self) -> bool:
        """Whether the WebSocket is open and its write buffer is below the limit."""
        return self._writable.is_set() and not self._is_ending

    def write(self, message: bytes) -> None:
        """Send one message, or drop it if the WebSocket is closed; check `has_room` before sending bulk data."""
        if not self._is_ending:
            self._transport.write(self._machine.send_message(BINARY, message))

    async def drain(self) -> None:
        """Wait until `has_room`.

        Raises:
            ConnectionLost: the WebSocket is closed.
        """
        await self._writable.wait()
        if self._is_ending:
            raise self._lost()

    async def send(self, *messages: str | bytes) -> None:
        """Send messages with no other message in between; wait before and after while the write buffer is full.

        Raises:
            ConnectionLost: the WebSocket is closed.
        """
        await self.drain()  # others may have filled it
        for message in messages:
            opcode, payload = (TEXT, message.encode()) if isinstance(message, str) else (BINARY, message)
            self._send(opcode, payload)
        await self.drain()

    async def send_part(self, data: bytes, *, first: bool, last: bool) -> None:
        """Send a part of a binary message; no other message may be sent between its parts.

        Raises:
            ConnectionLost: the WebSocket is closed.
        """
        self._send(BINARY if first else CONTINUATION, data, fin=last)
        await self.drain()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a Close, and wait up to `CLOSE_TIMEOUT` seconds for the end of the TCP connection."""
        self._send_close(close_payload(code, reason))
        await first_completed(self._gone.wait(), timeout=CLOSE_TIMEOUT)
        self.abort()

    def abort(self) -> None:
        """Drop the TCP connection without a Close; the relay then drops the peer's connection too."""
        if not self._gone.is_set():  # Python 3.11.0 to 3.11.2 raise if the TLS connection is already closed
            self._transport.abort()

    # Called by asyncio:

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer that all connections of this thread share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that were read into the buffer."""
        self._received(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Make senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Wake waiting senders, and send a pong that was delayed."""
        self._writable.set()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - only a Close frame has a reason
        """Report the end of the TCP connection to all waiting callers; earlier messages can still be read."""
        self._transport.close()  # no effect, but Python 3.10 warns about transports that were not closed
        self._timer.cancel()
        self._gone.set()
        self._readable.set()
        self._writable.set()
        if self._on_lost is not None:
            self._on_lost(self._lost())

    # Receiving:

    def _received(self, data: memoryview) -> None:
        chunks, end = self._machine.receive_data(data, self._loop.time())
        self._flush()  # before the answer to a Close, because no frame may follow that answer
        if isinstance(end, Close):
            # RFC 6455 section 5.5.1: answer a Close with the same code. The server then closes the TCP connection.
            self._send_close(end.payload)
        elif isinstance(end, Violation):
            self._fail(end.code, end.reason)
        if self._deliver is None:
            self._keep(chunks)
        elif payload := _joined(chunks):
            self._deliver(payload)

    def _keep(self, chunks: list[Chunk]) -> None:
        """Keep chunks for `receive`; stop reading when there are too many."""
        if chunks:
            self._chunks += chunks
            self._unread += sum(map(_cost, chunks))
            self._readable.set()
        if self._unread > UNREAD_HIGH and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _take_chunks(self) -> bytes:
        data = _joined(self._chunks)
        self._chunks.clear()
        self._taken(self._unread)
        return data

    def _taken(self, size: int) -> None:
        self._unread -= size
        # Resume at half of the limit; at the limit itself, reading would be paused and resumed for every chunk.
        if self._reading_paused and self._unread <= UNREAD_HIGH // 2:
            self._reading_paused = False
            self._machine.reading_resumed(self._loop.time())
            self._transport.resume_reading()

    def _collect(self, chunk: Chunk, limit: int) -> None:
        if self._message is None:
            self._message, self._message_opcode = bytearray(), chunk.opcode
        self._message += chunk.payload
        if len(self._message) > limit:
            self._message = None
            self._chunks.clear()
            self._fail(1009, f"a message is longer than {limit} bytes")
            raise self._lost()

    def _finish_message(self) -> str | bytes:
        payload, self._message = bytes(self._message or b""), None
        if self._message_opcode != TEXT:
            return payload
        try:
            return payload.decode()
        except UnicodeDecodeError:
            self._fail(1007, "a text message is not UTF-8")
            raise self._lost() from None

    # Sending and ending:

    @property
    def _is_ending(self) -> bool:
        return self._machine.close_sent is not None or self._is_gone

    @property
    def _is_gone(self) -> bool:
        # A failed write closes the transport immediately, but `connection_lost` is called in the next turn of the loop.
        # Until then, asyncio would log a warning about each further write.
        return self._gone.is_set() or self._transport.is_closing()

    def _send(self, opcode: int, payload: bytes, *, fin: bool = True) -> None:
        if self._is_ending:
            raise self._lost()
        self._transport.write(self._machine.send_message(opcode, payload, fin=fin))

    def _flush(self) -> None:
        """Send pings and pongs; while the peer does not read, keep only the newest pong."""
        if self._writable.is_set() and (frames := self._machine.data_to_send()) and not self._is_gone:
            self._transport.write(frames)

    def _send_close(self, payload: bytes) -> None:
        """Send a Close, if none was sent; the server must then close the TCP connection within `CLOSE_TIMEOUT`."""
        if not self._is_gone and (frame := self._machine.send_close(payload, self._loop.time())):
            self._transport.write(frame)
            self._arm()

    def _fail(self, code: int, reason: str) -> None:
        """Send a Close with the reason and drop the connection without waiting (RFC 6455, section 7.1.7)."""
        self._has_failed = self._has_failed or self._machine.close_sent is None
        self._send_close(close_payload(code, reason))
        self.abort()

    def _lost(self) -> ConnectionLost:
        # Prefer the peer's Close, because this side's Close may be just the answer to it. 1006 means that there was
        # none (RFC 6455 section 7.1.5).
        received = self._machine.close_received
        close = received or self._machine.close_sent
        if close is None:
            return ConnectionLost("the WebSocket is closed", code=1006)
        closed_here = self._has_failed and received is None
        return ConnectionLost("the WebSocket is closed", code=close.code, reason=close.reason, closed_here=closed_here)

    def _arm(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)

    def _tick(self) -> None:
        """Let the machine check whether the peer is alive; received data postpones the deadline, so it may be early."""
        self._machine.tick(self._loop.time(), held_up=self._reading_paused)
        self._flush()
        if self._machine.is_dead:
            self._fail(1011, "keepalive ping timeout")
        else:
            self._arm()


def _joined(chunks: Collection[Chunk]) -> bytes:
    return b"".join([chunk.payload for chunk in chunks])


def _cost(chunk: Chunk) -> int:
    return len(chunk.payload) + CHUNK_COST
