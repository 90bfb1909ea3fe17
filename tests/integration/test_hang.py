"""Facts about the verdict on jobs of many ranks, with real agents and tunnels."""

import contextlib
from collections.abc import Iterator

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.hang.examine import collect_replies, examine
from relay_client.hang.output import verdict_as_object, verdict_as_text
from relay_client.hang.reports import read_jobs
from relay_client.hang.verdict import JobVerdict
from relay_client.verbs.hang import Hang
from relay_core.agent_api.collectives import ProcessCollectives
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.collectives import node_of, operations
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay


async def verdicts(
    client: Tunnels, *, agents: int, ports: list[int] | None = None, within: float = DEADLINE
) -> list[JobVerdict]:
    """Return the verdicts when so many agents are known."""
    await client.search.wait_for(lambda: True if len(client.roster) == agents else None, lambda _why: None)
    return [JobVerdict.of(job) for job in read_jobs(await collect_replies(client, within=within), ports)]


async def test_job_without_torch(relay: LocalRelay) -> None:
    """If the ranks have no process groups to examine, a hint names the command that shows where they are."""
    node = Node(Process(free_port(), 1, rank=0, world=1))
    node.collectives = [ProcessCollectives(problem="torch is not imported")]
    async with agent(relay, node), tunnels(relay) as client:
        await client.discover_all()
        answer = await Hang().perform(client)
    assert ("rank 0: torch is not imported", 0) == (answer.text, answer.status)
    assert "run 'relay-client stacks' to see what each rank is doing" == answer.hint


async def test_many_ranks_on_many_nodes(relay: LocalRelay) -> None:
    """Of 64 ranks on 16 nodes, the one that is missing is named; another job on the hybrid connection is apart."""
    base, other = free_port(), free_port() + 100
    async with contextlib.AsyncExitStack() as stack:
        for first in range(0, 64, 4):
            await stack.enter_async_context(agent(relay, node_of(base, range(first, first + 4), 64, behind=41)))
        await stack.enter_async_context(agent(relay, node_of(other, range(2), 2)))
        client = await stack.enter_async_context(tunnels(relay))
        await client.discover()
        found = {verdict.job.base_port: verdict for verdict in await verdicts(client, agents=17)}
        chosen = await verdicts(client, agents=17, ports=[base + 7])
    assert {base, other} == set(found)
    assert [base] == [verdict.job.base_port for verdict in chosen]
    assert (
        "group 'default' (64 ranks): collective #6 all_reduce [16] float32; entered by ranks 0-40,42-63 at "
        "train.py:90 in step (12 s ago); missing rank 41, which is at train.py:41 in step (blocked in a call)"
    ) == verdict_as_text(verdict_as_object(chosen))
    text = verdict_as_text(verdict_as_object([found[base], found[other]]))
    assert f"job on ports {other}-{other + 1} (train.py):\n\n" in text


async def test_agent_that_does_not_answer(relay: LocalRelay) -> None:
    """The ranks of an agent that is silent are not known, and it is not waited for longer than the deadline."""
    base = free_port()
    silent = node_of(base, range(2, 4), 4)
    silent.is_silent = True
    async with agent(relay, node_of(base, range(2), 4)), agent(relay, silent), tunnels(relay) as client:
        await client.discover()
        (verdict,) = await verdicts(client, agents=2, within=1)
    assert (
        "group 'default' (4 ranks): collective #6 all_reduce [16] float32; entered by ranks 0-1 at train.py:90 in step "
        "(12 s ago); unknown: ranks 2-3, which did not answer within 1 s"
    ) == verdict_as_text(verdict_as_object([verdict]))


async def test_json(relay: LocalRelay) -> None:
    """The JSON output has the numbers of the verdict, and every rank's place."""
    base = free_port()
    async with agent(relay, node_of(base, range(2), 2, behind=1)), tunnels(relay) as client:
        await client.discover()
        (job,) = verdict_as_object(await verdicts(client, agents=1))["jobs"]  # type: ignore[misc]
    assert {
        "name": "default",
        "ranks": [0, 1],
        "number": 6,
        "operations": [{"operation": "all_reduce [16] float32", "ranks": [0]}],
        "entered": [0],
        "waiting": [0],
        "missing": [1],
        "unknown": [],
        "seconds": 12.0,
    } == job["groups"][0]
    assert [(0, "train.py:90 in step"), (1, "train.py:41 in step")] == [(r["rank"], r["place"]) for r in job["ranks"]]
    assert [base, base + 1] == job["ports"]


class Looks(list[ProcessCollectives]):
    """The answers of a node, of which each look sees the next ones, and the last ones again."""

    def __init__(self, *answers: list[ProcessCollectives]) -> None:
        super().__init__()
        self._answers = list(answers)

    def __iter__(self) -> Iterator[ProcessCollectives]:
        return iter(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_slow_steps(relay: LocalRelay, is_stuck: bool) -> None:
    """Operations that all ranks have entered, and that complete in order, are not a hang, however old they are."""
    base = free_port()
    slow = node_of(base, range(2), 2)
    before = list(slow.collectives)
    group = before[0].groups[0]._replace(enqueued=7, completed=6, operations=operations(7, age=2.0))
    slow.collectives = Looks(before, before if is_stuck else [one._replace(groups=(group,)) for one in before])
    async with agent(relay, slow), tunnels(relay) as client:
        await client.discover()
        await client.search.wait_for(lambda: True if client.roster else None, lambda _why: None)
        (verdict,) = await examine(client, None)
    assert is_stuck == verdict.is_hanging == bool(verdict.groups)
