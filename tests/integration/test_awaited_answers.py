"""Facts about what is logged while agents do not answer."""

import asyncio
import logging

import pytest

from relay_client.verbs import verb
from relay_client.verbs.hang import Hang
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.verb import Session, Verb
from relay_core.errors import NoListener
from tests.support.machine.deadline import until
from tests.support.machine.ports import free_port
from tests.support.network.collectives import node_of
from tests.support.network.fleet import agent, tunnels
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.usefixtures("_at_once")


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(verb, "LOG_AFTER", 0.01)
    caplog.set_level(logging.WARNING, "relay_client.verbs")


async def logged(session: Session, request: Verb, caplog: pytest.LogCaptureFixture) -> str:
    """Perform a request, after one of a program that asks repeatedly, until something is logged, and return it."""
    asking = [asyncio.create_task(session.perform(each)) for each in (Hang(once=True), request)]
    await until(lambda: bool(caplog.messages))
    for each in asking:
        each.cancel()
    await asyncio.wait(asking)
    return "\n".join(caplog.messages)


@pytest.mark.parametrize("outage", [None, NoListener("the tunnel to node-1 is not answering")])
async def test_awaited_agent(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, outage: NoListener | None
) -> None:
    """The agent is named, and so is a tunnel that carries no data; nothing is logged for repeated requests."""
    node = node_of(free_port(), range(1), 1)
    node.is_silent = True
    async with agent(relay, node), tunnels(relay) as client:
        session = Session(client)
        await session.search()
        monkeypatch.setattr(client, "outage", lambda _agent: outage)
        (info,) = client.roster
        expected = f"waiting for the result of 'stacks' from {info.name}" + (f"; {outage.sentence}" if outage else "")
        assert expected == await logged(session, Stacks(), caplog)


async def test_awaited_relay(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no agent is known, the search is what takes so long."""
    async with tunnels(relay) as client:
        monkeypatch.setattr(client, "discover_all", lambda **_options: asyncio.Event().wait())
        assert "waiting for the result of 'stacks' from the relay or an agent" == await logged(
            Session(client), Stacks(), caplog
        )
