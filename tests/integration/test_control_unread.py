"""Facts about programs that read nothing from the control socket."""

import asyncio
import socket
from pathlib import Path

import pytest

from relay_client.control import server
from relay_client.control.messages import GetStatus
from relay_client.control.protocol import ClientProtocol
from tests.integration.test_control import request, running
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

REQUESTS = 2000


async def test_program_that_reads_no_results(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results for a program that reads nothing do not accumulate: it is disconnected, and others are not."""
    monkeypatch.setattr(server, "MAX_RESULT", 64 * 1024)
    async with running(relay, tmp_path / "own") as here:
        (address,) = here.directory.addresses()
        protocol, loop = ClientProtocol(), asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            connection.connect(str(address.path))
            protocol.receive_data(await asyncio.wait_for(loop.sock_recv(connection, 65536), DEADLINE))
            for _ in range(REQUESTS):
                protocol.send_request(GetStatus())
            with pytest.raises(OSError):  # noqa: PT011 - the error depends on the moment
                for _ in range(REQUESTS):
                    await asyncio.wait_for(loop.sock_sendall(connection, protocol.data_to_send()), DEADLINE)
                    await request(here.client, GetStatus())
                    protocol.send_request(GetStatus())
        assert () == (await request(here.client, GetStatus())).nodes  # type: ignore[attr-defined]
