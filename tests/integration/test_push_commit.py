"""Facts about a push that is cancelled, with real agents and simulated processes."""

import asyncio
from typing import Any

import pytest

from relay_client.push.deliver import push_file
from relay_core.agent_api.push import Phase, Push, Pushed, State
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.errors import Interrupted
from relay_core.records import encode
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, agent, process, tunnels
from tests.support.network.relay import LocalRelay

STATES = {Phase.PREPARE: State.READY, Phase.COMMIT: State.DONE}


class Pushing(Node):
    """A node whose process waits in one phase until it may continue."""

    def __init__(self, *processes: Any, waits_in: Phase | None = None) -> None:
        super().__init__(*processes)
        self.phases: list[Phase] = []
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self._waits_in = waits_in

    async def answer(self, request: Any) -> Any:
        if not isinstance(request, Push):
            return await super().answer(request)
        self.phases.append(request.phase)
        if request.phase is self._waits_in:
            self.has_begun.set()
            await self.may_end.wait()
        port = next(iter(self.processes))
        result = encode(Pushed(state=STATES.get(request.phase, State.FAILED)))
        return NodeReplies((Reply(port, self.processes[port].fields["rank"], result),))


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.COMMIT])
async def test_cancelled_push(relay: LocalRelay, phase: Phase) -> None:
    """Cancelled before code is replaced, a push changes nothing; later, it changes all ranks, and names them."""
    async with process(free_port(), rank=0) as first, process(free_port(), rank=1) as second:
        nodes = Pushing(first), Pushing(second, waits_in=phase)
        async with agent(relay, nodes[0]), agent(relay, nodes[1]), tunnels(relay) as client:
            await asyncio.wait_for(client.search.wait_for(lambda: len(client.roster) == 2 or None, print), DEADLINE)
            push = asyncio.ensure_future(push_file(client, "a.py", "x = 1", ranks="0,1", seconds=1, waits=False))
            await asyncio.wait_for(nodes[1].has_begun.wait(), DEADLINE)
            push.cancel()
            await asyncio.sleep(0)
            nodes[1].may_end.set()
            await asyncio.wait({push}, timeout=DEADLINE)
    is_late = phase is Phase.COMMIT
    with pytest.raises(Interrupted if is_late else asyncio.CancelledError) as raised:
        await push
    expected = [Phase.PREPARE, Phase.COMMIT if is_late else Phase.ABORT]
    assert [expected, expected] == [node.phases for node in nodes]
    late = "it was too late to stop the push; the code was replaced in ranks 0-1"
    assert (late if is_late else "") == str(raised.value)
