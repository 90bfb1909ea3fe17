"""Facts about finding every agent at the delays of Azure, with and without the relay's help."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from relay_client.ports.forwarder import Forwarder
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.delayed_relay import AZURE, delayed
from tests.support.network.fleet import node_of, tunnels, who_serves
from tests.support.network.relay import local_relay

WITHIN = DEADLINE / 3
"""Seconds: 30 on an idle machine, where 8 agents need about 5."""
CONNECTS = 3
"""To each rank: a wrong route would show in any of them."""


@pytest.mark.parametrize("selects", [True, False])
@pytest.mark.parametrize("agents", [2, 8])
async def test_every_agent_is_found_at_the_delays_of_azure(tls_directory: Path, agents: int, selects: bool) -> None:
    """All are found soon, whether or not the relay honours the headers, and each rank answers for itself."""
    ranks = {free_port(): f"rank-{number}" for number in range(agents)}
    async with (
        local_relay(tls_directory, honour_listener_selection=selects, make=delayed(AZURE)) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        nodes = (node_of(relay, port, name=name) for port, name in ranks.items())
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        client = await stack.enter_async_context(tunnels(relay))
        started = time.monotonic()
        await stack.enter_async_context(Forwarder(client, list(ranks)))
        asked = [port for port in ranks for _ in range(CONNECTS)]
        answers = await asyncio.gather(*(who_serves(port) for port in asked))
        seconds = time.monotonic() - started
        assert [f"{ranks[port]}:{port}" for port in asked] == answers
        assert agents == len(client.roster)
        assert seconds < WITHIN
