"""Facts about editors that listen, to which an agent opens streams: who may be reached, and who may not."""

import asyncio
import socket

import pytest

from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.requests import Listen
from relay_core.errors import ConnectionLost, LocalPortInUse
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import (
    DiallingAgent,
    Node,
    agent,
    process,
    tunnels,
)
from tests.support.network.relay import LocalRelay


async def test_an_editor_that_listens_is_dialled_by_the_job(relay: LocalRelay) -> None:
    """A port that another program holds is used the other way round: the agent opens a stream to the editor."""
    answered: asyncio.Queue[bytes] = asyncio.Queue()

    async def editor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered.put_nowait(await reader.readline())
        writer.write(b"initialize\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(editor, "127.0.0.1", 0)
    port, free = server.sockets[0].getsockname()[1], free_port()
    async with (
        server,
        process(port, "never") as rank,
        tunnels(relay) as client,
        Forwarder(client, [port, free], may_reverse=True, trust_unknown=True) as forwarder,
    ):
        assert [free] == forwarder.opened
        async with agent(relay, Node(rank), DiallingAgent) as dialling:
            request, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
            await stream.write(b"hello from the job\n")
            assert b"hello from the job\n" == await asyncio.wait_for(answered.get(), DEADLINE)
            assert b"initialize\n" == await asyncio.wait_for(stream.read(), DEADLINE)
            await stream.close()
            assert b"" == await asyncio.wait_for(request.read(), DEADLINE)  # the session is over, and so is the request
            _, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)  # the editor still listens
            await stream.write(b"hello again\n")
            assert b"hello again\n" == await asyncio.wait_for(answered.get(), DEADLINE)


async def test_a_port_that_is_closed_ends_its_request(relay: LocalRelay) -> None:
    """When the client closes the port of a listening editor, the agent's request ends, and the rank is free again."""

    async def editor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(editor, "127.0.0.1", 0) as server,
        tunnels(relay) as client,
        process(port := server.sockets[0].getsockname()[1], "never") as rank,
        agent(relay, Node(rank), DiallingAgent) as dialling,
    ):
        async with Forwarder(client, [port], may_reverse=True, trust_unknown=True):
            request, _ = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
        assert b"" == await asyncio.wait_for(request.read(), DEADLINE)


async def test_an_editor_that_has_gone_refuses_the_job(relay: LocalRelay) -> None:
    """When nothing listens on the port any more, the agent's stream is refused, and the request ends."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # taken, and refuses whoever dials
        port = holder.getsockname()[1]
        async with (
            process(port, "never") as rank,
            tunnels(relay) as client,
            Forwarder(client, [port], may_reverse=True, trust_unknown=True),
            agent(relay, Node(rank), DiallingAgent) as dialling,
        ):
            request, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
            with pytest.raises(ConnectionLost, match="no editor is listening on port"):
                await asyncio.wait_for(stream.read(), DEADLINE)
            assert b"" == await asyncio.wait_for(request.read(), DEADLINE)


async def test_a_port_of_another_relay_client_is_in_use(relay: LocalRelay) -> None:
    """A port that another relay-client has is an error, not an editor."""
    port = free_port()
    async with tunnels(relay) as first, tunnels(relay) as second, Forwarder(first, [port], may_reverse=True):
        with pytest.raises(LocalPortInUse, match=f"port {port} on this machine is in use by another relay-client"):
            async with Forwarder(second, [port], may_reverse=True):
                pass


async def test_an_agent_cannot_open_streams_on_its_own(relay: LocalRelay) -> None:
    """A client that did not ask for it refuses a stream that an agent opens towards it."""
    port = free_port()
    async with (
        process(port, "rank") as rank,
        agent(relay, Node(rank), DiallingAgent) as dialling,
        tunnels(relay) as client,
    ):
        await client.discover()
        client.open_request(next(iter(client.roster)).id, Listen(port))
        _, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
        with pytest.raises(ConnectionLost, match=f"this client does not accept connections to {port}"):
            await asyncio.wait_for(stream.read(), DEADLINE)
