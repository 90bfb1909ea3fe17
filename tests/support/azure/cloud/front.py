"""The way to Azure: a proxy for HTTPS that ends the TLS of Azure's names here and lets services answer.

A program finds it through HTTPS_PROXY and trusts it through a CA file, so that nothing in the program is changed:

    program -- CONNECT management.azure.com:443 --> proxy -- TLS with a certificate for that name --> service

Some names may be led to a server on this machine instead, byte by byte; any other name is refused.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from relay_server.config import certificates as server_tls
from relay_server.config.model import TlsSettings
from tests.support.azure.cloud.web import Reply, Request, request
from tests.support.machine.deadline import DEADLINE

NAMES = (
    "management.azure.com",
    "login.microsoftonline.com",
    "graph.microsoft.com",
    *(f"{name}.vault.azure.net" for name in ("contoso-kv", "new-kv", "other-kv", "policy-kv")),
)
"""What the certificate is for."""

Answer = Callable[[Request], "Reply | None"]


class Front:
    """Serves until it is closed.

    Args:
        directory: Where the CA and the certificate are, or will be: made once, because keys take time.
        answer: Answers a request, or returns None for one that it does not know; those are kept in `unknown`.
    """

    def __init__(self, directory: Path, answer: Answer) -> None:
        certificates = server_tls.prepare(TlsSettings(directory=directory), NAMES)
        assert certificates.ca is not None
        self.ca_file = certificates.ca
        self.unknown: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.context = server_tls.server_context(certificates)
        self._server.answer = self._checked(answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="azure", daemon=True)
        self._thread.start()

    def _checked(self, answer: Answer) -> Callable[[Request], Reply]:
        def carry(asked: Request) -> Reply:
            line = f"{asked.method} https://{asked.host}{asked.path}"
            try:
                reply = answer(asked)
            except Exception as error:  # noqa: BLE001  (the test fails, whatever it is)
                self.unknown.append(f"{line}: {error!r}")
                return Reply(500, {"error": {"code": "InternalError", "message": f"{line}: {error!r}"}})
            if reply is None:
                self.unknown.append(line)
                return Reply(501, {"error": {"code": "NotImplemented", "message": f"nobody plays {line}"}})
            return reply

        return carry

    def environment(self) -> dict[str, str]:
        """Return what leads a program here."""
        return {
            "HTTPS_PROXY": f"http://127.0.0.1:{self._server.server_address[1]}",
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
        }

    def close(self) -> None:
        """Answer no more, and end what is still open."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False  # waited for when the server is closed, so that no thread outlives it
    context: ssl.SSLContext
    answer: Callable[[Request], Reply]


class _Handler(BaseHTTPRequestHandler):
    """First the proxy's side of a connection, then, after CONNECT, that of the named host."""

    protocol_version = "HTTP/1.1"
    timeout = DEADLINE
    disable_nagle_algorithm = True
    server: _Server
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.rpartition(":")[0].lower()
        if self.host not in NAMES:
            self.send_error(502, "Bad Gateway")
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        except (ssl.SSLError, OSError):
            self.close_connection = True
            return
        self.rfile = self.connection.makefile("rb")
        self.wfile = socketserver._SocketWriter(self.connection)  # type: ignore[attr-defined]
        self.close_connection = False  # urllib3 sends CONNECT as HTTP/1.0

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.answer(request(self.command, self.host, self.path, headers, body))
        content = b"" if reply.content is None else json.dumps(reply.content).encode()
        self.send_response(reply.status)
        for name, value in {**_headers(content), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _answer  # noqa: N815  (http.server looks them up)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (http.server's name)
        """Stay quiet: a log would hold what tests keep secret."""

    def finish(self) -> None:
        super().finish()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def _headers(content: bytes) -> Mapping[str, str]:
    return {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(content))}
