"""Facts about when the MCP server searches for agents, with real agents and tunnels."""

import pytest

from relay_client.mcp.reading import Reading
from relay_core.agent_api.collectives import ProcessCollectives
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay


class Rank(Node):
    """A node with one process that answers a request for its stacks."""

    def __init__(self, port: int) -> None:
        super().__init__(Process(port, 1, rank=0, world=1, script="train.py"))
        thread = ThreadStack("MainThread", 1, True, (Frame("/job/train.py", 90, "step"),))
        self.collectives = [ProcessCollectives(stacks=ProcessStacks("helper thread", (thread,)))]


async def test_the_first_call_searches_once(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a tool searches for agents once, and a second call not at all."""
    async with agent(relay, Rank(free_port())), tunnels(relay) as client:
        searches: list[bool] = []
        search = client.search.find_all

        async def counted(*, waits: bool = True) -> None:
            searches.append(waits)
            await search(waits=waits)

        monkeypatch.setattr(client.search, "find_all", counted)
        reading = Reading(client, allow_code=False)
        for _ in range(2):
            await reading.connect()
            (group,) = await reading.stacks("all", all_threads=False)
            assert [0] == group["ranks"]
        assert [False] == searches
