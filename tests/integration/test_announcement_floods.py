"""Facts about an agent that announces too much, too often, or what cannot be, beside a real client."""

import asyncio
import time

import pytest

from relay_client.agents.roster import MAX_ABSENT
from relay_client.agents.tunnels import ANNOUNCEMENT_BURST, ANNOUNCEMENT_INTERVAL
from relay_client.verbs.hang import Hang
from relay_client.verbs.stacks import Stacks
from relay_core.agent_api.announcement import AgentInfo
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, Process, agent, node_of, tunnels
from tests.support.network.relay import LocalRelay


async def test_flood_of_announcements(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many announcements of one agent, a limited number is processed, and the last one always is."""
    processed = []
    parse = AgentInfo.parse
    port = free_port()

    def counting(*arguments: object, **options: object) -> AgentInfo:
        processed.append(time.monotonic())
        return parse(*arguments, **options)  # type: ignore[arg-type]

    async with node_of(relay, port, rank=0, state="running") as node, tunnels(relay) as client:
        await asyncio.wait_for(client.search.wait_for(lambda: len(client.roster) or None, print), DEADLINE)
        monkeypatch.setattr("relay_client.agents.tunnels.AgentInfo.parse", counting)
        started = time.monotonic()
        for number in range(500):
            node.change(port, detail=f"{number}", state="crashed" if number % 2 else "running")
            await asyncio.sleep(0.001)

        def last() -> bool | None:
            return any(target.detail == "499" for each in client.roster for target in each.targets) or None

        await asyncio.wait_for(client.search.wait_for(last, print), DEADLINE)
        allowed = (ANNOUNCEMENT_BURST + time.monotonic() - started) / ANNOUNCEMENT_INTERVAL
        assert 1 <= len(processed) <= allowed + 2
        assert sum("crashed: " in message for message in caplog.messages) <= len(processed)


async def test_worlds_that_cannot_be(relay: LocalRelay) -> None:
    """Processes that each announce a world of 65,535 ranks make no answer longer than a real job would."""
    ports = [1025 + 2 * number for number in range(600)]
    node = Node(*(Process(port, port, rank=0, world=65535, state="running") for port in ports))
    async with agent(relay, node), tunnels(relay) as client:
        await asyncio.wait_for(client.search.wait_for(lambda: len(client.roster) or None, print), DEADLINE)
        stacks = await Stacks("all").perform(client)
        assert MAX_ABSENT == max(len(group["ranks"]) for group in stacks.data["groups"])
        hang = await Hang().perform(client)
        assert len(ports) == len(hang.data["jobs"])
        assert len(ports) + MAX_ABSENT >= sum(len(job["ports"]) for job in hang.data["jobs"])
