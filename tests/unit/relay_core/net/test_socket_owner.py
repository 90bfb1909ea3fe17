"""Facts about the check of who connects to a port of this machine."""

import asyncio
import os

import pytest

from relay_core.net.socket_owner import PeerCheck
from relay_core.net.streams.endpoint import LocalEndpoint, listen_local
from relay_core.socket_tables import SocketTables
from tests.support.deadline import DEADLINE
from tests.support.other_user import OTHER_UID, connecting_stranger, needs_second_user


@pytest.mark.skipif(not SocketTables().is_readable, reason="this system does not show who owns a socket")
@needs_second_user
async def test_a_stranger_is_refused_and_logged_once() -> None:
    """A port with a check accepts its own user, and resets other users' connections; one log line for each user."""
    logged: list[str] = []
    accepted: list[LocalEndpoint] = []
    check = PeerCheck(frozenset({os.geteuid()}), logged.append)

    def connected(endpoint: LocalEndpoint) -> None:
        if check.allows(endpoint):
            accepted.append(endpoint)
            endpoint.write(b"welcome\n")

    server = await listen_local(connected, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert ["", ""] == [await connecting_stranger(port, "evaluate") for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"welcome\n" == await asyncio.wait_for(reader.readline(), DEADLINE)
        writer.close()
        await writer.wait_closed()
        for endpoint in accepted:
            await endpoint.close()
    assert [f"refused a connection from another user of this machine (uid {OTHER_UID})"] == logged
    assert 1 == len(accepted)
