"""Facts about the first stages of a connection."""

import asyncio

import pytest

from relay_core.diagnosis.path_to_relay import answers, connect_tcp, resolve
from relay_core.errors import RelayUnreachable
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.streams import echo, local_server


async def test_a_name_has_addresses() -> None:
    """A name is resolved to each of its addresses once."""
    found = await resolve("localhost", 443)
    assert "127.0.0.1" in found
    assert len(set(found)) == len(found)


async def test_a_name_that_cannot_be_resolved() -> None:
    """The error is that of a real connection."""
    with pytest.raises(RelayUnreachable, match=r"the name relay\.invalid cannot be resolved"):
        await resolve("relay.invalid", 443)


async def test_a_port_that_accepts() -> None:
    """The address that accepted the connection is returned."""
    async with local_server(echo) as (port, _):
        assert "127.0.0.1" == await connect_tcp("localhost", port)
        assert await answers("127.0.0.1", port, within=DEADLINE)


async def test_a_closed_port() -> None:
    """A refusal is the error of a real connection, and an answer."""
    port = free_port()
    with pytest.raises(RelayUnreachable, match=f"cannot connect to localhost:{port}: connection refused"):
        await connect_tcp("localhost", port)
    assert await answers("127.0.0.1", port, within=DEADLINE)


async def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name resolution is limited in time."""

    async def silent(*_arguments: object, **_options: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silent)
    with pytest.raises(RelayUnreachable, match=r"relay\.invalid did not answer within 0.05 s"):
        await resolve("relay.invalid", 443, within=0.05)
