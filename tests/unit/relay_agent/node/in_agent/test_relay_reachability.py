"""Facts about what a node's processes learn of the relay: real sockets stand for the processes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest

from relay_agent.node.in_agent.processes import ProcessTable
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_agent.node.in_agent.relay_reachability import Reach
from relay_core.errors import ConfigurationError, RelayDebugError, RelayUnreachable, Unauthorized, UntrustedCertificate
from tests.support.machine.deadline import DEADLINE

DOWN = RelayUnreachable("connection refused", hint="check the network")


class Process:
    """A process that has registered, and reads what it is sent."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def message(self) -> dict:
        return json.loads(await asyncio.wait_for(self._reader.readline(), DEADLINE))


@contextlib.asynccontextmanager
async def process(table: ProcessTable, port: int = 5678) -> AsyncIterator[Process]:
    """Register a process; what the table answers to that has been read."""
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    reader, far_writer = await asyncio.open_connection(sock=far)
    assert table.admit(RegisteredProcess(writer, 1, {"register": {"port": port}}))
    found = Process(reader)
    assert port == (await found.message())["registered"]
    yield found
    writer.close()
    far_writer.close()


async def test_processes_are_informed_when_the_relay_is_not_reached_in_time() -> None:
    """Each process, and one that registers later, gets the reason of the last attempt; listening follows."""
    table = ProcessTable()
    async with process(table) as one:
        reach = Reach(table, timeout=0.1)
        reach.retrying(DOWN)
        sent = {"unreachable": "connection refused", "hint": "check the network"}
        assert sent == await one.message()
        async with process(table, 5679) as two:
            assert sent == await two.message()
            reach.listening()
            assert {"listening": True} == await one.message() == await two.message()


async def test_a_relay_that_was_reached_is_not_unreachable() -> None:
    """After the first listening an outage of any length is not sent."""
    table = ProcessTable()
    async with process(table) as one:
        reach = Reach(table, timeout=0.1)
        reach.listening()
        reach.retrying(DOWN)
        assert {"listening": True} == await one.message()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one.message(), 0.5)


async def test_a_process_that_registers_during_an_outage_is_informed() -> None:
    """It gets the reason at once and `unreachable` after the time limit; one that had registered before does not."""
    table = ProcessTable()
    async with process(table) as one:
        reach = Reach(table, timeout=0.1)
        reach.listening()
        assert {"listening": True} == await one.message()
        reach.retrying(DOWN)
        async with process(table, 5679) as two:
            assert {"notice": "the relay cannot be reached, retrying: connection refused"} == await two.message()
            assert {"unreachable": "connection refused", "hint": "check the network"} == await two.message()
            assert set() == reach._waiting
            reach.listening()
            assert {"listening": True} == await one.message() == await two.message()


async def test_a_process_that_has_left_is_forgotten() -> None:
    """Its time limit does not make the relay unreachable for the others."""
    table = ProcessTable()
    async with process(table) as one, process(table, 5679):
        left, remaining = table.targets()[1], table.targets()[0]
        reach = Reach(table, timeout=3600)
        left.left()
        reach._expired(left)
        assert {remaining} == reach._waiting
        reach.listening()
        assert {"listening": True} == await one.message()


async def test_a_refused_identity_is_not_an_unreachable_relay() -> None:
    """A new role is waited for until another failure follows, which is then sent."""
    table = ProcessTable()
    async with process(table) as one:
        reach = Reach(table, timeout=0.1)
        reach.retrying(Unauthorized("no role", status=401))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one.message(), 0.5)
        reach.retrying(DOWN)
        assert "connection refused" == (await one.message())["unreachable"]


async def test_access_is_retried_while_the_network_is_down(caplog: pytest.LogCaptureFixture) -> None:
    """A Key Vault that cannot be reached does not end the agent, and is logged once."""
    failures = [DOWN, DOWN, DOWN]

    async def find() -> str:
        if failures:
            raise failures.pop()
        return "access"

    reach = Reach(ProcessTable())
    assert "access" == await reach.retry(find)
    assert 1 == caplog.text.count("not listening, retrying: connection refused")
    reach.listening()


async def test_access_that_a_predecessor_had_is_an_outage() -> None:
    """An untrusted certificate does not end an agent that replaces one that has listened: the relay is unreachable."""
    failures = [UntrustedCertificate("a proxy inspects TLS")]

    async def find() -> str:
        if failures:
            raise failures.pop()
        return "access"

    table = ProcessTable()
    async with process(table) as one:
        reach = Reach(table, timeout=0.1, has_listened=True)
        assert "access" == await reach.retry(find)
        assert "a proxy inspects TLS" == (await one.message())["unreachable"]


@pytest.mark.parametrize("error", [ConfigurationError("no file"), Unauthorized("the secret is not yours", status=403)])
async def test_access_that_was_withdrawn_is_not_retried(error: RelayDebugError) -> None:
    """A secret that has been removed or refused ends the agent, whatever its predecessor had."""

    async def find() -> str:
        raise error

    with pytest.raises(type(error)):
        await Reach(ProcessTable(), has_listened=True).retry(find)


async def test_access_is_not_retried_in_vain() -> None:
    """A wrong setting is raised at once."""

    async def find() -> str:
        raise ConfigurationError("no connection string")

    reach = Reach(ProcessTable())
    with pytest.raises(ConfigurationError):
        await reach.retry(find)
    reach.failed(ConfigurationError("no connection string"))
