"""Facts about a push while two jobs are connected, with real agents and simulated processes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.push.deliver import push_file
from relay_core.agent_api.push import Phase, Push, Pushed, State
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.errors import ConfigurationError, RelayDebugError
from relay_core.records import encode
from relay_core.value_parsers import format_ranges
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay

READY = Pushed(state=State.READY)
HELD = Pushed(state=State.HELD, place="f")
STATES = {Phase.COMMIT: State.DONE, Phase.ABORT: State.DONE}


class Job(Node):
    """The node of one job; its ranks answer `answers` to the first phase of a push."""

    def __init__(self, base: int, *answers: Pushed) -> None:
        world = len(answers)
        super().__init__(*(Process(base + rank, 1, rank=rank, world=world) for rank in range(world)), host="vm")
        self.phases: list[tuple[Phase, int]] = []
        """The phases received, with the port of the process."""
        self._answers = answers

    async def answer(self, request: Any) -> Any:
        if not isinstance(request, Push):
            return await super().answer(request)
        replies = []
        for process, first in zip(self.targets(), self._answers, strict=True):
            rank, port = process.fields["rank"], process.logical_port
            if request.selects(rank, port):
                self.phases.append((request.phase, port))
                result = Pushed(state=STATES[request.phase]) if request.phase in STATES else first
                result = HELD if request.phase is Phase.HOLD else result
                replies.append(Reply(port, rank, encode(result)))
        return NodeReplies(tuple(replies))


@contextlib.asynccontextmanager
async def client_of(relay: LocalRelay, *jobs: Job) -> AsyncIterator[Tunnels]:
    async with contextlib.AsyncExitStack() as stack:
        for job in jobs:
            await stack.enter_async_context(agent(relay, job))
        client = await stack.enter_async_context(tunnels(relay))
        await client.discover_all()
        yield client


def first_ports(*jobs: int) -> tuple[int, ...]:
    """Return the first port of each of some jobs with this many ranks."""
    return tuple(consecutive_ports(ranks)[0] if ranks > 1 else free_port() for ranks in jobs)


async def refusal(client: Tunnels, **choice: str) -> RelayDebugError:
    with pytest.raises(RelayDebugError) as refused:
        await push_file(client, "work.py", "pass", seconds=5, waits=False, **{"ranks": "all", **choice})
    return refused.value


async def test_another_job_that_does_not_allow_it(relay: LocalRelay) -> None:
    """The process that refuses is named with its port and host, and the hint selects the others."""
    base, other = first_ports(2, 1)
    async with client_of(relay, Job(base, READY, READY), Job(other, Pushed(is_refused=True))) as client:
        refused = await refusal(client)
    assert isinstance(refused, ConfigurationError)
    assert (
        f"rank 0 (port {other}) on vm: the job does not allow its code to be replaced; nothing was changed in any rank"
    ) == refused.sentence
    assert (
        "start the job with --debug-allow-edit (RELAY_DEBUG_ALLOW_EDIT=true), or add --ports "
        f"{format_ranges([base, base + 1])} to replace the code in the other processes only"
    ) == refused.hint


async def test_chosen_ports(relay: LocalRelay) -> None:
    """A push to the ports of one job does not reach the processes of another job."""
    base, other = first_ports(2, 1)
    job, stranger = Job(base, READY, READY), Job(other, Pushed(is_refused=True))
    async with client_of(relay, job, stranger) as client:
        ports = format_ranges([base, base + 1])
        outcome = await push_file(client, "work.py", "pass", ranks="all", ports=ports, seconds=5, waits=False)
    assert [base, base + 1] == [member.port for result in outcome.results for member in result.members]
    assert {(phase, port) for phase in (Phase.PREPARE, Phase.COMMIT) for port in (base, base + 1)} == {*job.phases}
    assert [] == stranger.phases


async def test_another_job_without_the_file(relay: LocalRelay) -> None:
    """A process of another job that has not loaded the file is named in the same way."""
    base, other = first_ports(1, 1)
    failed = Pushed(error="no module was loaded from work.py", hint="use --as to name the file on the node")
    async with client_of(relay, Job(base, READY), Job(other, failed)) as client:
        refused = await refusal(client)
    assert (
        f"rank 0 (port {other}) on vm: no module was loaded from work.py; nothing was changed in any rank"
    ) == refused.sentence
    assert (
        f"use --as to name the file on the node, or add --ports {base} to replace the code in the other processes only"
    ) == refused.hint


async def test_one_rank_of_a_job(relay: LocalRelay) -> None:
    """In a single job, a rank that refuses is named by its number, and the hint selects the other ranks."""
    (base,) = first_ports(3)
    async with client_of(relay, Job(base, READY, Pushed(is_refused=True), READY)) as client:
        refused = await refusal(client)
    assert refused.sentence.startswith("rank 1: the job does not allow its code to be replaced; ")
    assert refused.hint.endswith(", or add --ranks 0,2 to replace the code in the other ranks only")


async def test_another_job_that_is_not_complete(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of another job that are not found do not delay a push to chosen ports."""
    monkeypatch.setattr("relay_client.push.deliver.SEARCH_SECONDS", 0.0)
    base, other = first_ports(1, 2)
    incomplete = Job(other, READY, READY)
    del incomplete.processes[other + 1]
    async with client_of(relay, Job(base, READY), incomplete) as client:
        refused = await refusal(client)
        outcome = await push_file(client, "work.py", "pass", ranks="all", ports=f"{base}", seconds=5, waits=False)
    assert "rank 1 was not found; nothing was changed in any rank" == refused.sentence
    assert f"add --ports {format_ranges(sorted((base, other)))} to replace the code in the other processes only" == (
        refused.hint
    )
    assert [State.DONE] == [result.state for result in outcome.results]


async def test_rank_that_has_the_code_already(relay: LocalRelay) -> None:
    """A rank with nothing to replace is not held, and the others are still brought to the same step."""
    (base,) = first_ports(3)
    ready, same = Pushed(state=State.READY, functions=("f",)), Pushed(state=State.READY, is_same=True)
    job = Job(base, ready, same, ready)
    async with client_of(relay, job) as client:
        outcome = await push_file(client, "work.py", "pass", ranks="all", seconds=5)
    assert ("f", {base, base + 2}) == (outcome.place, {port for phase, port in job.phases if phase is Phase.HOLD})
    assert {base, base + 1, base + 2} == {port for phase, port in job.phases if phase is Phase.COMMIT}
