"""Facts about the check of private endpoints."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from relay_core.diagnosis.checks import Skipped
from relay_core.diagnosis.path_to_relay import check_ports, check_private_endpoint
from relay_core.errors import RelayUnreachable
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port


@contextlib.asynccontextmanager
async def unanswered_port() -> AsyncIterator[int]:
    """A port on which connections are neither accepted nor refused, because its backlog is full."""
    with socket.socket() as server, contextlib.ExitStack() as clients:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(8):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(server.getsockname())
        await asyncio.sleep(0)
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (["20.61.98.1"], "the relay has a public address"),
        ([], "the proxy resolves the name"),
        (["127.0.0.1"], "127.0.0.1 is an address of this machine"),
    ],
)
async def test_only_a_private_address_is_checked(addresses: list[str], why: str) -> None:
    """The ports matter only behind a private endpoint."""
    with pytest.raises(Skipped, match=why):
        await check_private_endpoint(addresses, listens=True)


async def test_a_client_needs_no_further_ports() -> None:
    """Only listeners need the rendezvous ports."""
    assert "the relay has the private address 10.0.0.4" == await check_private_endpoint(["10.0.0.4"], listens=False)


async def test_a_refused_connection_is_an_answer() -> None:
    """A port without a service shows that packets arrive."""
    found = await check_ports("127.0.0.1", [free_port()], within=DEADLINE)
    assert "the private endpoint 127.0.0.1 answers on the rendezvous ports" == found


async def test_ports_that_nobody_answers_are_a_failure() -> None:
    """A firewall that drops packets is reported with the ports to open."""
    async with unanswered_port() as port:
        with pytest.raises(RelayUnreachable, match=f"127.0.0.1 does not answer on ports {port}") as caught:
            await check_ports("127.0.0.1", [port], within=0.3)
    assert "allow outbound TCP 9400-9599" in caught.value.hint
