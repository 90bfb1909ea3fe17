"""Facts about the check of who connects to a port of this machine."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from relay_core.net.loopback import PeerCheck, until_accepted
from relay_core.net.streams.local_endpoint import LocalEndpoint, connect_local
from relay_core.net.streams.local_server import LocalServer
from relay_core.socket_tables import SocketTables
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.no_descriptors import no_descriptors
from tests.support.machine.other_user import (
    OTHER_UID,
    connecting_stranger,
    hide_owners,
    needs_owners,
    needs_second_user,
    use_tables,
)


@needs_owners
@needs_second_user
async def test_a_stranger_is_refused_and_logged_once() -> None:
    """A port with a check accepts its own user, and resets other users' connections; one log line for each user."""
    logged: list[str] = []
    accepted: list[LocalEndpoint] = []
    check = PeerCheck(frozenset({os.geteuid()}), logged.append)

    def connected(endpoint: LocalEndpoint) -> None:
        accepted.append(endpoint)
        endpoint.write(b"welcome\n")

    async with await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(connected), check.admits) as server:
        port = server.port
        assert ["", ""] == [await connecting_stranger(port, "evaluate") for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"welcome\n" == await asyncio.wait_for(reader.readline(), DEADLINE)
        writer.close()
        await writer.wait_closed()
        for endpoint in accepted:
            await endpoint.close()
    assert [f"refused a connection from another user of this machine (uid {OTHER_UID})"] == logged
    assert 1 == len(accepted)


@needs_owners
def test_an_owner_that_cannot_be_determined_is_refused() -> None:
    """A program without descriptors refuses even its own user, logs why once, and accepts as soon as it has some."""
    logged: list[str] = []
    with SocketTables() as tables, socket.create_server(("127.0.0.1", 0)) as server:
        check = PeerCheck(frozenset({os.geteuid()}), logged.append, tables)
        with socket.create_connection(server.getsockname()):
            connection, _ = server.accept()
            with connection:
                with no_descriptors():
                    assert [False, False] == [check.admits(connection) for _ in range(2)]
                assert check.admits(connection)
    assert ["refused a connection, because its user cannot be determined: Too many open files"] == logged


def test_a_system_that_does_not_show_owners_admits_everybody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where that is decided, connections are accepted, even while no descriptor is left."""
    hide_owners(monkeypatch, tmp_path)
    check = PeerCheck(frozenset({os.geteuid()}), pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        with connection:
            assert check.admits(connection)
            with no_descriptors():
                assert check.admits(connection)


@needs_owners
@pytest.mark.parametrize("trust_unknown", [False, True])
async def test_who_accepts_cannot_be_determined(monkeypatch: pytest.MonkeyPatch, *, trust_unknown: bool) -> None:
    """An outgoing connection is then aborted, even if a system that does not show owners would be trusted."""
    with socket.create_server(("127.0.0.1", 0)) as server, SocketTables() as tables:
        use_tables(monkeypatch, tables)
        endpoint = await connect_local(*server.getsockname())
        connection, _ = server.accept()
        with connection:
            with no_descriptors(), pytest.raises(PermissionError, match="cannot determine who accepted"):
                await until_accepted(endpoint.transport, trust_unknown=trust_unknown)
            await asyncio.wait_for(endpoint.ended.wait(), DEADLINE)
