"""Facts about ports that check each connection before they accept the next."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from relay_core.net.streams.local_endpoint import LocalEndpoint
from relay_core.net.streams.local_server import RETRY_DELAY, LocalServer
from relay_core.program import run
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.no_descriptors import no_descriptors

CROWD = 90
"""Connections that wait to be accepted; the kernel completes a hundred."""


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def refuse_a_crowd() -> None:
    """Refuse many connections that wait at the same time, while almost no descriptor is left, and then accept one."""
    accepted: asyncio.Queue[LocalEndpoint] = asyncio.Queue()
    seen: list[int] = []

    def is_last(_: socket.socket) -> bool:
        seen.append(descriptors())
        return len(seen) > CROWD

    async with await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(accepted.put_nowait), is_last) as server:
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CROWD)]
        before = descriptors()
        for each in crowd:
            each.setblocking(False)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(asyncio.get_running_loop().sock_recv(each, 1), DEADLINE)
            each.close()
        assert before + 1 == max(seen)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await (await asyncio.wait_for(accepted.get(), DEADLINE)).close()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_refused_connections_are_closed_one_by_one(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """However many connections wait at once, never more than one of them has a descriptor before it is refused."""
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    monkeypatch.setenv(run.VARIABLE, loop)
    run.run(refuse_a_crowd())


async def test_accepting_continues_after_exhaustion() -> None:
    """Without descriptors, the loop receives one report; the connection is accepted a moment later."""
    accepted: asyncio.Queue[LocalEndpoint] = asyncio.Queue()
    reports: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, report: reports.put_nowait(report))
    async with await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(accepted.put_nowait)) as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            with no_descriptors():
                report = await asyncio.wait_for(reports.get(), DEADLINE)
                await asyncio.sleep(RETRY_DELAY / 10)
                assert reports.empty()
            assert isinstance(report["exception"], OSError)
            await (await asyncio.wait_for(accepted.get(), DEADLINE)).close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_server_that_is_closed_while_it_accepts(turns: int) -> None:
    """Whenever the server is closed, a new connection either reaches its owner or is closed."""
    accepted: list[LocalEndpoint] = []
    admitted = asyncio.Event()
    server = await LocalServer.open(
        "127.0.0.1", 0, lambda: LocalEndpoint(accepted.append), lambda _connection: admitted.set() or True
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await asyncio.wait_for(admitted.wait(), DEADLINE)
    for _ in range(turns):
        await asyncio.sleep(0)
    server.close()
    await server.wait_closed()
    for endpoint in accepted:
        endpoint.abort()
    with contextlib.suppress(ConnectionResetError):
        assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_closed_server_accepts_nothing() -> None:
    """A port can be closed twice, and nothing is listening there any more."""
    server = await LocalServer.open("127.0.0.1", 0, LocalEndpoint)
    server.close()
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)
