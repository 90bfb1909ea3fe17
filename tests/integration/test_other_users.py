"""Facts about other users of the laptop, and of a node: 127.0.0.1 is theirs too, the debugger's connections are not."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_client.ports.forwarder import Forwarder
from relay_core.errors import ConnectionLost, LocalPortInUse
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.socket_tables import SocketTables, shared_tables
from relay_core.tunnel.events import StreamOpened
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import (
    OTHER_UID,
    connecting_stranger,
    hide_owners,
    listening_stranger,
    needs_owners,
    needs_second_user,
)
from tests.support.machine.ports import free_port
from tests.support.network.fleet import DiallingAgent, Node, Process, agent, node_of, process, tunnels, who_serves
from tests.support.network.relay import LocalRelay

pytestmark = needs_owners


class RepeatingAgent(DiallingAgent):
    """An agent that keeps the client's session, to open more streams later."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.session: SessionDriver

    def _open(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        self.session = driver
        super()._open(driver, stream, event)


class DiallingProcess(Process):
    """A rank whose debugger the test plays: it keeps the port that the agent gives it to connect to."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ports: asyncio.Queue[int] = asyncio.Queue()

    async def connect_to(self, port: int) -> None:
        self.ports.put_nowait(port)


@contextlib.asynccontextmanager
async def own_editor(port: int) -> AsyncIterator["asyncio.Queue[bytes]"]:
    """Listen as this user; what is yielded has the first line of each connection."""
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def editor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.readline())
        writer.close()

    async with await asyncio.start_server(editor, "127.0.0.1", port):
        yield received


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait for a log line."""
    deadline = time.monotonic() + DEADLINE
    while text not in caplog.text:
        assert time.monotonic() < deadline, f"not logged: {text}"
        await asyncio.sleep(0.02)


@needs_second_user
async def test_a_port_that_another_user_holds_is_an_error(relay: LocalRelay) -> None:
    """A program of another user on a port of --ports is not taken for a listening editor."""
    port = free_port()
    async with listening_stranger(port) as stranger, tunnels(relay) as client:
        for trust_unknown in (False, True):
            with pytest.raises(LocalPortInUse, match=f"port {port} on this machine is in use by another user"):
                async with Forwarder(client, [port], may_reverse=True, trust_unknown=trust_unknown):
                    pass
        assert not stranger.at_eof()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stranger.readline(), 0.1)


@needs_second_user
async def test_a_stranger_in_place_of_the_editor_is_not_dialled(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """If another user takes the port of an editor that has ended, no byte of the job reaches that user."""
    caplog.set_level(logging.INFO)
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        rank = await stack.enter_async_context(process(port, "never"))
        client = await stack.enter_async_context(tunnels(relay))
        async with own_editor(port) as received:
            await stack.enter_async_context(Forwarder(client, [port], may_reverse=True, trust_unknown=True))
            dialling = await stack.enter_async_context(agent(relay, Node(rank), RepeatingAgent))
            request, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
            await stream.write(b"hello from the job\n")
            assert b"hello from the job\n" == await asyncio.wait_for(received.get(), DEADLINE)
            await stream.close()
            assert b"" == await asyncio.wait_for(request.read(), DEADLINE)
        while not dialling.dialled.empty():
            dialling.dialled.get_nowait()
        async with listening_stranger(port) as stranger:
            await until_logged(caplog, "another user's program is listening, so the job will not connect to it")
            stream = dialling.session.open(port)  # as if the job had been faster than the check
            with pytest.raises(ConnectionLost, match="no editor is listening on port"):
                await stream.write(b"secret\n")
                await asyncio.wait_for(stream.read(), DEADLINE)
            line = asyncio.ensure_future(stranger.readline())
            assert b"accepted \n" == await asyncio.wait_for(line, DEADLINE)
        async with own_editor(port) as received:
            _, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
            await stream.write(b"hello again\n")
            assert b"hello again\n" == await asyncio.wait_for(received.get(), DEADLINE)


async def test_without_tables_an_editor_needs_an_option(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system does not show who listens, only --listen makes the job connect; one line reports it."""
    hide_owners(monkeypatch, tmp_path)
    caplog.set_level(logging.INFO)
    port, free = free_port(), free_port()
    async with process(port, "never") as rank, tunnels(relay) as client, own_editor(port) as received:
        with pytest.raises(LocalPortInUse, match="does not show which user's program") as caught:
            async with Forwarder(client, [port], may_reverse=True):
                pass
        assert "--listen" in caught.value.hint
        async with (
            Forwarder(client, [port, free], may_reverse=True, trust_unknown=True),
            agent(relay, Node(rank), DiallingAgent) as dialling,
        ):
            _, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
            await stream.write(b"hello from the job\n")
            assert b"hello from the job\n" == await asyncio.wait_for(received.get(), DEADLINE)
    assert 1 == caplog.text.count("this system does not reveal which user is connecting")


@needs_second_user
async def test_another_user_cannot_use_a_local_port(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """relay-client serves its own user's connections to its ports, and resets those of others."""
    caplog.set_level(logging.INFO)
    port = free_port()
    async with node_of(relay, port, name="a"), tunnels(relay) as client, Forwarder(client, [port]):
        for host in ("127.0.0.1", "::1"):
            assert "" == await connecting_stranger(port, "evaluate", host=host)
        assert f"a:{port}" == await who_serves(port)
    assert f"port {port}: refused a connection from another user of this machine (uid {OTHER_UID})" in caplog.text


@needs_second_user
async def test_another_user_of_the_node_cannot_use_the_port_to_the_editor(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """The port through which a job connects to a listening editor accepts the agent's user only, each time."""
    caplog.set_level(logging.INFO)
    port = free_port()
    rank = DiallingProcess(port, 1)
    async with (
        tunnels(relay) as client,
        own_editor(port) as received,
        Forwarder(client, [port], may_reverse=True, trust_unknown=True),
        agent(relay, Node(rank)),
    ):
        dial_back = await asyncio.wait_for(rank.ports.get(), DEADLINE)
        assert ["", ""] == [await connecting_stranger(dial_back, "evaluate\n") for _ in range(2)]
        _, writer = await asyncio.open_connection("127.0.0.1", dial_back)
        writer.write(b"the job\n")
        assert b"the job\n" == await asyncio.wait_for(received.get(), DEADLINE)
        writer.close()
        await writer.wait_closed()
    assert 1 == caplog.text.count(f"refused a connection from another user of this machine (uid {OTHER_UID})")


async def test_the_socket_tables_are_tried_once(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening many ports does not read the table of all sockets for each of them."""
    tried = []

    def tables() -> SocketTables:
        tried.append(1)
        return shared_tables()

    monkeypatch.setattr("relay_client.ports.forwarder.shared_tables", tables)
    ports = [free_port() for _ in range(3)]
    async with tunnels(relay) as client, Forwarder(client, ports) as forwarder:
        assert ports == forwarder.opened
    assert 1 == len(tried)
