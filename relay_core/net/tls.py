"""TLS of all connections: a machine without I/O, and a transport that runs it on TCP or inside another TLS connection.

Each end of a tunnel decrypts twice: the path to the relay, and the tunnel inside it. `TlsMachine` is used for both;
`relay_core.net.session.secure_channel` adds what only the inner one needs. For outer connections, `TlsTransport` takes
the place of asyncio's own TLS transport:

- It needs a third less CPU time for a small message on asyncio's event loop, where `sslproto` ends each read with an
  exception, and as much as uvloop's. docs/benchmarks.md has the figures of the whole path.
- All connections of a process share one buffer for received bytes, because nothing is kept in it between two calls.
  asyncio allocates 256 KiB for each TLS connection.
- It is the same code with every event loop. asyncio's and uvloop's transports differ when a connection closes.
- TLS inside TLS, as behind a proxy with an https URL, is two of these transports, one on top of the other, without
  `start_tls`.

What is given up: asyncio's limits on the time for handshake and closing. The owner of a transport has limits of its own
(`handshake`, `relay_server.connection.tcp`), which include these.

What was rejected: a protocol class of our own for the receiver. As an `asyncio.Transport`, this one accepts the same
protocols as a TCP transport, so they can be tested without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, cast

from relay_core.net.memory import shared_ciphertext_buffer
from relay_core.tunnel.frames import Buffer

RECORD_SIZE = 16 * 1024
"""Maximum number of bytes of plaintext in a TLS record. One read returns one record; a larger buffer is a third
slower."""

# Records without plaintext, such as key updates (RFC 8446, section 4.6.3), cost the receiver 30 us for each 27 bytes,
# because it derives keys and answers. A peer that sends a megabyte of them per second would stop everything else.
MAX_BARREN = 32 * 1024
"""Bytes that a peer may send without plaintext, and bytes of answers to them that it may leave unread: an incomplete
record is 16 KiB, and the tickets and key updates of a real peer are a few hundred bytes.

What a proven peer sends is paid off by its plaintext: by each record `RECORD_OVERHEAD`, and by each byte of plaintext
one more. TLS 1.3 adds 22 bytes to a record, and TLS 1.2, without key updates, 29 to 85. So the count does not grow with
records that have plaintext, even of one byte. 600 key updates of 27 bytes need 16 KiB of plaintext or a thousand empty
pings after them: key updates are at most half of what a peer sends. Full records need the other half of the limit."""
RECORD_OVERHEAD, OLD_RECORD_OVERHEAD = 32, 96
"""Bytes around the plaintext of one record, at most, and the same for TLS 1.2."""
UNPROVEN_READ = 1024
"""Bytes that are read at once from a peer that has not proven itself, or that has sent more without plaintext than an
incomplete record, half of `MAX_BARREN`: the turns of other connections come first."""


class TlsMachine:
    """One end of a TLS connection, sans-IO.

    Args:
        context: Certificates and limits.
        server_side: Whether the peer starts the handshake.
        server_hostname: Name for SNI and for the verification of the server's certificate.
    """

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None) -> None:
        self.is_open = False
        """True if the handshake is complete."""
        self.close_received = False
        """True if the peer has sent close_notify; no plaintext follows."""
        self.close_sent = False
        """True if this side has sent close_notify."""
        self.records = 0
        """Number of records with plaintext that `read_into` has returned."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate (DER), if it has sent one."""
        return self.ssl_object.getpeercert(binary_form=True)

    def receive_data(self, data: Buffer) -> None:
        """Store bytes from the peer, for `shake_hands` and `read_into`."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Continue the handshake, and return whether it is complete; call `data_to_send` after that.

        Raises:
            ssl.SSLError: the handshake has failed; `data_to_send` has the alert for the peer.
        """
        with contextlib.suppress(ssl.SSLWantReadError):
            self.ssl_object.do_handshake()
            self.is_open = True
        return self.is_open

    def read(self) -> bytes:
        """Return all plaintext that has been received; raises the same errors as `read_into`."""
        records: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while self._incoming.pending and not self.close_received:
                record = self.ssl_object.read(RECORD_SIZE)
                self.close_received = not record
                records.append(record)
        return b"".join(records)

    def read_into(self, buffer: memoryview) -> int:
        """Write received plaintext into a buffer and return its size; call it again after it has filled the buffer.

        Raises:
            ssl.SSLError: the peer violates the protocol; `data_to_send` has the alert for it.
        """
        read, size, end = self.ssl_object.read, 0, len(buffer)
        with contextlib.suppress(ssl.SSLWantReadError):
            # A record that did not fit into the last buffer is in OpenSSL's own memory.
            while size < end and not self.close_received and (self._incoming.pending or self.ssl_object.pending()):
                received = cast("int", read(RECORD_SIZE, buffer[size:]))
                self.close_received = not received
                self.records += 1
                size += received
        return size

    def write(self, data: Buffer) -> None:
        """Encrypt plaintext for `data_to_send`; only while open."""
        self.ssl_object.write(data)

    def close(self) -> None:
        """Add a close_notify to `data_to_send`, unless there was one or the handshake is not complete."""
        if self.is_open and not self.close_sent:
            self.close_sent = True
            # `unwrap` writes this side's close_notify, and then raises if the peer's has not arrived.
            with contextlib.suppress(ssl.SSLError):
                self.ssl_object.unwrap()

    def data_to_send(self) -> bytes:
        """Return bytes for the peer: handshake messages, records and alerts; call it after an error too."""
        return self._outgoing.read()


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """A TLS connection: the protocol of a transport below it, and the transport of `protocol`.

    `protocol.connection_made` is called when the handshake is complete.

    Args:
        protocol: Receives the plaintext.
        machine: A machine that has not been used yet.
        is_proven: False for a peer that anybody could be, until `prove` is called. Its records may have `MAX_BARREN`
            bytes beside the plaintext altogether; those of another peer, if no plaintext has paid them off.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, machine: TlsMachine, *, is_proven: bool = True) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.established: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is complete or has failed, with the ssl.SSLError or OSError."""
        self._protocol = protocol
        self._machine = machine
        self._below = cast("asyncio.Transport", None)  # set by connection_made, before anything else is called
        self._is_proven = is_proven
        self._buffer = shared_ciphertext_buffer() if is_proven else shared_ciphertext_buffer()[:UNPROVEN_READ]
        self._barren = 0
        """Bytes received without plaintext, and not paid off."""
        self._unread_answers = 0
        """Bytes of answers to records without plaintext, written while the peer reads too slowly."""
        self._is_full = False
        """True while the peer reads too slowly."""
        self._is_closing = False
        self._is_paused = False
        """True if the protocol above has paused reading."""
        self._is_waiting_for_others = False
        """True until other connections have had their turn."""

    def prove(self) -> None:
        """Record that the peer is who it should be."""
        self._is_proven, self._buffer = True, shared_ciphertext_buffer()

    # Called by the protocol above:

    def write(self, data: Buffer) -> None:
        """Encrypt and send bytes, or drop them if the connection is closing."""
        if not self.is_closing():
            self._machine.write(data)
            self._below.write(self._machine.data_to_send())

    def close(self) -> None:
        """Send what has been written and a close_notify, and close TCP when the peer has answered it.

        Until then, received data is dropped. The time for this is the owner's to limit, with `abort`.
        """
        if not self._machine.is_open:
            self.abort()
        elif not self.is_closing():
            self._is_closing = True
            self._machine.close()
            self._flush()

    def abort(self) -> None:
        """Drop the connection, if there is one, without a close_notify."""
        self._is_closing = True
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Return True if nothing can be sent any more."""
        return self._is_closing or self._below.is_closing()

    def pause_reading(self) -> None:
        """Stop reading; what has been read already is still delivered."""
        self._is_paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Start reading again."""
        self._is_paused = False
        if not self._is_waiting_for_others:
            self._below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits, in encrypted bytes, at which the protocol is paused and resumed."""
        if not self._below.is_closing():  # uvloop raises if the connection is closed
            self._below.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that the kernel has not accepted yet."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `ssl_object`, or information about the connection below."""
        return self._machine.ssl_object if name == "ssl_object" else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol from now on."""
        self._protocol = cast("asyncio.BufferedProtocol", protocol)

    # Called by the transport below:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; a server waits for the client, because OpenSSL allocates 30 KiB at its start."""
        self._below = cast("asyncio.Transport", transport)
        if not self._machine.ssl_object.server_side:
            self._continue_handshake()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the shared buffer, or the beginning of it for a peer that is read in small pieces."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt received bytes and deliver them."""
        if nbytes == len(self._buffer):
            self._let_others_read()
        self._machine.receive_data(self._buffer[:nbytes])
        if self._machine.is_open or self._continue_handshake():
            self._deliver(nbytes)

    def eof_received(self) -> None:
        """Let the transport below close itself: without a close_notify, nothing can be sent any more either."""

    def pause_writing(self) -> None:
        """Pause the protocol."""
        self._is_full = True
        if self._machine.is_open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol."""
        self._is_full, self._unread_answers = False, 0
        if self._machine.is_open:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the protocol, or to whoever waits for the handshake."""
        self._is_closing = True
        self._fail(exc or ConnectionResetError("the connection was closed"))
        if self._machine.is_open:
            self._protocol.connection_lost(exc)

    def _let_others_read(self) -> None:
        """Continue to read in the next iteration of the event loop.

        While reads fill the buffer, libuv reads up to 32 times in a row. Messages of other connections waited for 4 MiB
        to be processed, in each program on their way: 80 ms instead of 9 ms beside a bulk transfer.
        """
        self._is_waiting_for_others = True
        self._below.pause_reading()
        self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._is_waiting_for_others = False
        if not (self._is_paused or self._below.is_closing()):
            self._below.resume_reading()

    def _continue_handshake(self) -> bool:
        try:
            is_open = self._machine.shake_hands()
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._fail(error)
            self.abort()
            return False
        self._flush()
        if is_open:
            self._protocol.connection_made(self)
            if not self.established.done():
                self.established.set_result(None)
        return is_open

    def _fail(self, error: Exception) -> None:
        if not self.established.done():
            self.established.set_exception(error)
            self.established.exception()  # if nobody waits for it any more, asyncio must not log it

    def _deliver(self, received: int) -> None:
        machine, plaintext, records = self._machine, 0, self._machine.records
        try:
            while True:
                buffer = cast("memoryview", self._protocol.get_buffer(-1))
                size = machine.read_into(buffer)
                plaintext += size
                if size and not self._is_closing:
                    self._protocol.buffer_updated(size)
                if size < len(buffer):
                    break
        except ssl.SSLError:
            self._flush()
            self.abort()
            return
        answers = self._flush()
        self._barren += received - plaintext
        if self._is_proven:
            overhead = OLD_RECORD_OVERHEAD if machine.ssl_object.version() == "TLSv1.2" else RECORD_OVERHEAD
            self._barren = max(0, self._barren - plaintext - overhead * (machine.records - records))
            is_suspect = self._barren > MAX_BARREN // 2
            self._buffer = shared_ciphertext_buffer()[: UNPROVEN_READ if is_suspect else None]
        self._unread_answers += answers if self._is_full else 0
        if max(self._barren, self._unread_answers) > MAX_BARREN:
            self.abort()
        elif machine.close_received:
            self.close()
            self._below.close()

    def _flush(self) -> int:
        """Send what the machine has for the peer, such as the answer to a key update, and return its size."""
        if (data := self._machine.data_to_send()) and not self._below.is_closing():
            self._below.write(data)
        return len(data)
