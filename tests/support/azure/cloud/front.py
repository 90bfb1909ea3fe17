"""The way to Azure: a proxy for HTTPS that ends the TLS of Azure's names here and lets services answer.

A program finds it through HTTPS_PROXY and trusts it through a CA file, so that nothing in the program is changed:

    program -- CONNECT management.azure.com:443 --> proxy -- TLS with a certificate for that name --> service

It runs in a thread, because the tests of scripts have no event loop. A name that is not in NAMES is refused.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from relay_server.config import certificates as server_tls
from relay_server.config.model import TlsSettings
from tests.support.azure.cloud.web import Reply, Request, application
from tests.support.azure.network import proxy, web_server
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
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        started: Future[int] = Future()
        serving = self._serve(server_tls.server_context(certificates), started)
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(serving,), name="azure", daemon=True
        )
        self._thread.start()
        self._port = started.result(DEADLINE)

    async def _serve(self, context: ssl.SSLContext, started: Future[int]) -> None:
        async with (
            web_server(application(self._reply), context) as port,
            proxy(dict.fromkeys(NAMES, port)) as running,
        ):
            started.set_result(running.port)
            await self._over.wait()

    async def _reply(self, asked: Request) -> Reply:
        line = f"{asked.method} https://{asked.host}{asked.path}"
        try:
            reply = self._answer(asked)
        except Exception as error:  # noqa: BLE001  (the test fails, whatever it is)
            self.unknown.append(f"{line}: {error!r}")
            return Reply(500, {"error": {"code": "InternalError", "message": f"{line}: {error!r}"}})
        if reply is None:
            self.unknown.append(line)
            return Reply(501, {"error": {"code": "NotImplemented", "message": f"nobody plays {line}"}})
        return reply

    def environment(self) -> dict[str, str]:
        """Return what leads a program here."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self._port}", "REQUESTS_CA_BUNDLE": str(self.ca_file)}

    def close(self) -> None:
        """Answer no more, and end what is still open."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()
