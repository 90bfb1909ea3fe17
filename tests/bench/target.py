"""What every path leads to: a TCP server in a process of its own, whose clients say in their first byte what they want.

    E                  echo, until EOF
    U <8 bytes: n>     upload: n bytes are read, then one byte is sent
    D <8 bytes: n>     download: n bytes are sent

Blocking sockets and a thread for each connection: next to no work in Python, so that it is never what limits a path.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import sys

BLOCK = 1024 * 1024
LENGTH = struct.Struct("!Q")


class Connection(socketserver.BaseRequestHandler):
    """One client."""

    request: socket.socket

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wish = self.request.recv(1)
        if wish == b"E":
            self._echo()
        elif wish in {b"U", b"D"}:
            (size,) = LENGTH.unpack(self.request.recv(LENGTH.size, socket.MSG_WAITALL))
            self._sink(size) if wish == b"U" else self._source(size)

    def _echo(self) -> None:
        while data := self.request.recv(64 * 1024):
            self.request.sendall(data)

    def _sink(self, left: int) -> None:
        block = bytearray(BLOCK)
        while left and (received := self.request.recv_into(block)):
            left -= received
        if not left:
            self.request.sendall(b".")

    def _source(self, left: int) -> None:
        block = memoryview(bytes(BLOCK))
        while left:
            part = block[: min(left, BLOCK)]
            self.request.sendall(part)
            left -= len(part)


class Server(socketserver.ThreadingTCPServer):
    """Any number of clients; one that goes away early is normal here."""

    daemon_threads = True
    request_queue_size = 1024
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main() -> None:
    """Serve until killed; the port is the first line of stdout."""
    with Server(("127.0.0.1", 0), Connection) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
