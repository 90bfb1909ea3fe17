"""An open client websocket on an asyncio transport: a driver for `relay_core.ws.machine`, which knows the protocol.

It reads into one buffer and hands on whatever has arrived, so one wake-up of its user serves many frames, and it sends
each message as one frame in one write. Its user asks for what has arrived, or has it delivered, which spares a turn of
the event loop. Back-pressure goes both ways: beyond `UNREAD_HIGH` bytes that nobody has asked for the socket is not
read, beyond `WRITE_HIGH` that the kernel has not taken `send` waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost
from relay_core.ws.frames import BINARY, TEXT, Chunk, Close, Violation, close_payload
from relay_core.ws.machine import WebSocketMachine

__all__ = ["WebSocket"]

PING_INTERVAL = 20.0
PING_TIMEOUT = 20.0
"""Seconds; load balancers drop silent TCP connections after about 4 minutes."""
CLOSE_TIMEOUT = 5.0
"""Seconds for the peer's goodbye, and for the server to end TCP after it."""
READ_BYTES = 128 * 1024
UNREAD_HIGH = 256 * 1024
WRITE_HIGH = 256 * 1024


class WebSocket(asyncio.BufferedProtocol):
    """An open client websocket.

    Args:
        transport: The handshake is done on it; taken over from whoever did that.
        subprotocol: What both sides agreed on.
        early: Bytes that came behind the handshake.
    """

    def __init__(self, transport: asyncio.Transport, *, subprotocol: str | None = None, early: bytes = b"") -> None:
        self.subprotocol = subprotocol
        """The subprotocol both sides agreed on, or None."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._machine = WebSocketMachine(
            now=self._loop.time(),
            ping_interval=PING_INTERVAL,
            ping_timeout=PING_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            new_mask=functools.partial(os.urandom, 4),
        )
        self._chunks: deque[Chunk] = deque()
        self._unread = 0
        self._message: list[Chunk] = []
        """The beginning of a message that `receive` waits for the end of."""
        self._deliver: Callable[[bytes], None] | None = None
        self._on_lost: Callable[[ConnectionLost], None] | None = None
        self._reading_paused = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        transport.set_protocol(self)
        if early:
            self._received(memoryview(early))
        if transport.is_closing():
            self.connection_lost(None)

    def __repr__(self) -> str:
        closing = self._machine.close_sent or self._machine.close_received
        return f"<WebSocket {'closed' if self._gone.is_set() else 'closing' if closing else 'open'}>"

    # What the owner does:

    async def receive(self) -> str | bytes:
        """Return the next whole message; safe to cancel.

        Raises:
            ConnectionLost: the socket has ended; `code` is 1000 after an orderly end.
        """
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._message.append(chunk)
                self._taken(len(chunk.payload))
                if chunk.fin:
                    return self._finish_message()
            await self._until_readable()

    async def receive_chunk(self) -> bytes:
        """Return all that has arrived, in part or whole messages, for streams that ignore message boundaries.

        Never returns b"" (empty messages carry nothing). Safe to cancel.

        Raises:
            ConnectionLost: as `receive`.
        """
        while True:
            if data := self._take_chunks():
                return data
            await self._until_readable()

    def deliver_to(self, receiver: Callable[[bytes], None], *, lost: Callable[[ConnectionLost], None]) -> None:
        """Hand over what arrives as `receive_chunk` returns it, at once and from now on, and then the end.

        Args:
            receiver: Takes everything, and must not raise.
            lost: Called once.
        """
        self._deliver, self._on_lost = receiver, lost
        self._hand_over()
        if self._gone.is_set():
            lost(self._lost())

    @property
    def has_room(self) -> bool:
        """Whether the socket has not ended and takes more."""
        return self._writable.is_set() and not self._is_ending

    def write(self, message: bytes) -> None:
        """Send one message, or drop it if the socket has ended; whoever sends much looks at `has_room` first."""
        if not self._is_ending:
            self._transport.write(self._machine.send_message(BINARY, message))

    async def drain(self) -> None:
        """Wait until there is room.

        Raises:
            ConnectionLost: the socket has ended.
        """
        await self._writable.wait()
        if self._is_ending:
            raise self._lost()

    async def send(self, message: str | bytes) -> None:
        """Send one message; returns when the socket can take more.

        Raises:
            ConnectionLost: the socket has ended.
        """
        if self._is_ending:
            raise self._lost()
        opcode, payload = (TEXT, message.encode()) if isinstance(message, str) else (BINARY, message)
        self._transport.write(self._machine.send_message(opcode, payload))
        await self.drain()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a Close and wait, at most `CLOSE_TIMEOUT` seconds, for the peer's and the end of TCP."""
        self._send_close(close_payload(code, reason))
        with contextlib.suppress(*TIMEOUT_ERRORS):
            async with timeout(CLOSE_TIMEOUT):
                await self._gone.wait()
        self.abort()

    def abort(self) -> None:
        """Drop the TCP connection without a Close; the relay lets the peer see that."""
        if not self._gone.is_set():  # Python 3.11.0 to 3.11.2 fail when TLS has ended already
            self._transport.abort()

    # What asyncio does:

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were read."""
        self._received(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Let senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let them continue."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - only a close frame holds a reason
        """Let everybody know; what was received before can still be read."""
        self._transport.close()  # it is over, but Python 3.10 complains about transports that nobody closed
        self._timer.cancel()
        self._gone.set()
        self._readable.set()
        self._writable.set()
        if self._on_lost is not None:
            self._on_lost(self._lost())

    # Receiving:

    def _received(self, data: memoryview) -> None:
        chunks, end = self._machine.receive_data(data, self._loop.time())
        for chunk in chunks:
            self._chunks.append(chunk)
            self._unread += len(chunk.payload)
        self._flush()
        if isinstance(end, Close):
            self._send_close(end.payload)
        elif isinstance(end, Violation):
            self._fail(end.code, end.reason)
        if self._deliver is not None:
            self._hand_over()
        elif self._chunks:
            self._readable.set()
        if self._unread > UNREAD_HIGH and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _hand_over(self) -> None:
        if self._deliver is not None and (data := self._take_chunks()):
            self._deliver(data)

    def _take_chunks(self) -> bytes:
        data = b"".join([chunk.payload for chunk in self._chunks])
        self._chunks.clear()
        self._taken(len(data))
        return data

    def _taken(self, size: int) -> None:
        self._unread -= size
        if self._reading_paused and self._unread <= UNREAD_HIGH // 2:
            self._reading_paused = False
            self._machine.reading_resumed(self._loop.time())
            self._transport.resume_reading()

    async def _until_readable(self) -> None:
        if self._gone.is_set():
            raise self._lost()
        self._readable.clear()
        await self._readable.wait()

    def _finish_message(self) -> str | bytes:
        message, self._message = self._message, []
        payload = b"".join([chunk.payload for chunk in message])
        if message[0].opcode != TEXT:
            return payload
        try:
            return payload.decode()
        except UnicodeDecodeError:
            self._fail(1007, "a text message is no UTF-8")
            raise self._lost() from None

    # Sending and ending:

    @property
    def _is_ending(self) -> bool:
        return self._machine.close_sent is not None or self._gone.is_set()

    def _flush(self) -> None:
        """Send what the protocol itself has to send."""
        if (frames := self._machine.data_to_send()) and not self._gone.is_set():
            self._transport.write(frames)

    def _send_close(self, payload: bytes) -> None:
        """Send a Close, once; from then on the server has so long to end TCP."""
        if not self._gone.is_set() and (frame := self._machine.send_close(payload, self._loop.time())):
            self._transport.write(frame)
            self._arm()

    def _fail(self, code: int, reason: str) -> None:
        """Say why and hang up, without waiting for the peer."""
        self._send_close(close_payload(code, reason))
        self.abort()

    def _lost(self) -> ConnectionLost:
        close = self._machine.close_received or self._machine.close_sent
        code, reason = (close.code, close.reason) if close else (1006, "")
        return ConnectionLost("the websocket has ended", code=code, reason=reason)

    def _arm(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)

    def _tick(self) -> None:
        """Look whether the peer lives; a timer that is early only looks again."""
        self._machine.tick(self._loop.time(), held_up=self._reading_paused)
        self._flush()
        if self._machine.is_dead:
            self._fail(1011, "keepalive ping timeout")
        else:
            self._arm()
