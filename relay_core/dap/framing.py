"""The base protocol of DAP, without I/O: `Content-Length: N`, an empty line, and N bytes of JSON.

https://microsoft.github.io/debug-adapter-protocol/overview#base-protocol
"""

from __future__ import annotations

import json

from relay_core.dap.messages import NOT_DAP, Message, parse
from relay_core.errors import ProtocolError

MAX_HEADER = 4096
"""Maximum number of bytes before the empty line. DAP defines one field of about 25 bytes, so a longer header is not
DAP."""
MAX_BODY = 16 * 1024 * 1024
"""Maximum number of bytes of JSON. debugpy permanently stops reading at 16 MiB, so no valid message is larger."""

HEADER_START = b"Content-Length:"
"""The first bytes of every message from a known debugger."""
_END_OF_HEADER = b"\r\n\r\n"
_to_json = json.JSONEncoder(separators=(",", ":")).encode


def encode(message: Message) -> bytes:
    """Return a message in its wire format."""
    return encode_body(_to_json(message).encode())


def encode_body(body: bytes) -> bytes:
    """Return the wire format of a message that is already JSON."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def body_start(data: bytes) -> int:
    """Return the offset of the body in a whole message."""
    return data.index(_END_OF_HEADER) + len(_END_OF_HEADER)


class MessageDecoder:
    """A decoder that returns the messages in a byte stream; chunk boundaries do not matter.

    After a ProtocolError, the stream has lost its framing, and the decoder must not be used again.
    """

    def __init__(self, *, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> list[Message]:
        """Take bytes and return the messages that they complete.

        Raises:
            ProtocolError: the bytes are not DAP, or a message is larger than the limit.
        """
        self._buffer += data
        messages = []
        while (found := find_body(self._buffer)) is not None:
            start, length = found
            # Checked before the body is received, so that a peer cannot make this side buffer it.
            if length > self._max_body:
                raise ProtocolError(f"a message of {length} bytes exceeds the limit of {self._max_body}")
            end = start + length
            if len(self._buffer) < end:
                break
            messages.append(parse(bytes(self._buffer[start:end])))
            del self._buffer[:end]
        return messages

    def receive_eof(self) -> None:
        """Handle the end of the stream.

        Raises:
            ProtocolError: the stream ends inside a message.
        """
        if self._buffer:
            raise ProtocolError("the connection closed in the middle of a Debug Adapter Protocol message")


def find_body(data: bytearray) -> tuple[int, int] | None:
    """Return the offset and the length of the body of the first message; None while its header is incomplete.

    Args:
        data: Bytes of the stream, from the beginning of a message.

    Raises:
        ProtocolError: the bytes do not begin with a message.
    """
    # Searched from the start each time; `MAX_HEADER` limits the cost of this if bytes arrive one by one.
    end = data.find(_END_OF_HEADER, 0, MAX_HEADER)
    if end >= 0:
        return end + len(_END_OF_HEADER), _content_length(bytes(data[:end]))
    if len(data) >= MAX_HEADER:
        raise ProtocolError(f"{NOT_DAP}: no header in the first {MAX_HEADER} bytes")
    return None


def _content_length(header: bytes) -> int:
    """Return the value of Content-Length, the only defined field; other fields are ignored, as in HTTP."""
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            digits = value.strip()
            if not digits.isdigit() or len(digits) > 10:  # ten digits are enough for any length
                raise ProtocolError(f"{NOT_DAP}: Content-Length is not a number")
            return int(digits)
    raise ProtocolError(f"{NOT_DAP}: a header has no Content-Length")
