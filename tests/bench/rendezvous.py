"""The older way, as two programs: each TCP connection meets the other side on a websocket of its own.

    python -m tests.bench.rendezvous agent|client CONNECTION_FILE CA_FILE PORT

The agent carries what it is offered to 127.0.0.1:PORT; the client carries what connects to a port of its own, printed
first. It has what the tunnel has below it: the same relay, credentials, local sockets and outer TLS; no inner TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from relay_core.auth import credential_from_connection_string, find_connection_string
from relay_core.errors import RelayDebugError
from relay_core.net import HybridConnectionListener, connect
from relay_core.net.relay_tls import client_tls
from relay_core.net.streams.bridge import carry_bytes
from relay_core.net.streams.local_endpoint import LocalEndpoint, connect_local
from relay_core.net.streams.local_server import LocalServer
from relay_core.net.tasks import TaskSet
from relay_core.program.run import run_until_stopped
from tests.bench.rendezvous_stream import RendezvousStream


async def agent(connection_file: str, ca_file: str, port: int) -> None:
    """Serve offers until stopped."""
    found = find_connection_string(file=connection_file)

    async def serve(offer) -> None:
        with contextlib.suppress(RelayDebugError):
            websocket = await offer.accept()
            await carry_bytes(await connect_local("127.0.0.1", port), RendezvousStream(websocket))

    credential = credential_from_connection_string(found)
    async with (
        TaskSet() as tasks,
        HybridConnectionListener(
            found.endpoint(), credential, tls=client_tls(ca_file), on_state=lambda *_: print("listening", flush=True)
        ) as listener,
    ):
        async for offer in listener:
            tasks.spawn(serve(offer), name="offer")


async def client(connection_file: str, ca_file: str) -> None:
    """Carry local connections until stopped."""
    found = find_connection_string(file=connection_file)
    credential, tls = credential_from_connection_string(found), client_tls(ca_file)

    async def carry(local: LocalEndpoint) -> None:
        with contextlib.suppress(RelayDebugError):
            websocket = await connect(found.endpoint(), credential, tls=tls)
            await carry_bytes(local, RendezvousStream(websocket))

    async with TaskSet() as tasks:

        def accepted(local: LocalEndpoint) -> None:
            tasks.spawn(carry(local), name="connection")

        server = await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(accepted))
        print(server.port, flush=True)
        await asyncio.Event().wait()


def main(role: str, connection_file: str, ca_file: str, port: str) -> int:
    """Run one side."""
    return run_until_stopped(
        agent(connection_file, ca_file, int(port)) if role == "agent" else client(connection_file, ca_file)
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
