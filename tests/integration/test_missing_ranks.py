"""Facts about commands for all ranks of a job of which one node is not found, with real agents and tunnels."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from relay_client.agents.tunnels import RECONNECTING, Tunnels
from relay_client.compare.collect import collect_values
from relay_client.hang import examine
from relay_client.hang.examine import collect_replies
from relay_client.hang.output import verdict_as_object, verdict_as_text
from relay_client.hang.reports import NOT_REGISTERED, read_jobs
from relay_client.hang.verdict import JobVerdict
from relay_client.mcp.control import Control
from relay_client.mcp.reading import Reading
from relay_client.push import deliver
from relay_client.push.deliver import push_file
from relay_client.push.render import show_outcome
from relay_client.stacks import collect_stacks, grouped_stacks, show_stacks
from relay_client.verbs.env import Env
from relay_client.verbs.hang import Hang
from relay_client.verbs.push import Push
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Verb
from relay_client.verbs.watch import Watch
from relay_core.agent_api import evaluation, push
from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives
from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Phase, Pushed, State
from relay_core.agent_api.questions import NodeReplies, ReadStacks, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.compat import timeout
from relay_core.errors import ConnectionLost, NoListener, TimedOut
from relay_core.records import encode
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay

MAIN = ThreadStack("MainThread", 1, True, (Frame("/job/train.py", 90, "step"),))
STACKS = ProcessStacks("helper thread", (MAIN,))
AFTER = {Phase.PREPARE: State.READY, Phase.HOLD: State.HELD, Phase.COMMIT: State.DONE, Phase.ABORT: State.DONE}


class Ranks(Node):
    """A node whose processes answer as ranks do that wait in an all_reduce."""

    def __init__(self, base: int, *ranks: int) -> None:
        super().__init__(*(Process(base + rank, 1, rank=rank, world=4, script="train.py") for rank in ranks))
        self.pushes: list[Phase] = []
        """Phases received."""
        self._members = [Member(base + rank, rank) for rank in ranks]
        self.collectives = [_in_all_reduce(member) for member in self._members]

    async def answer(self, request: Any) -> Any:
        match request:
            case push.Push():
                self.pushes.append(request.phase)
                state = AFTER[request.phase]
                result = encode(Pushed(state=state, functions=("step",), place="step"))
                chosen = (member for member in self._members if request.selects(member.rank, member.port))
                return NodeReplies(tuple(Reply(each.port, each.rank, result) for each in chosen))
            case evaluation.Evaluate():
                value = encode(Value(text="0.25", place="__main__"))
                return NodeReplies(tuple(Reply(each.port, each.rank, value) for each in self._members))
            case ReadStacks():
                chosen = (member for member in self._members if request.selects(member.rank, member.port))
                return NodeReplies(tuple(Reply(each.port, each.rank, encode(STACKS)) for each in chosen))
        return await super().answer(request)


def _in_all_reduce(member: Member) -> ProcessCollectives:
    operation = Operation(6, "all_reduce", "[16] float32", 12.0)
    group = GroupRecord("0", "default_pg", "other", tuple(range(4)), 6, 5, (operation,))
    return ProcessCollectives(member.rank, (group,), "", "blocked", STACKS)


@contextlib.asynccontextmanager
async def half_a_job(relay: LocalRelay) -> AsyncIterator[tuple[Tunnels, Ranks, Ranks]]:
    """Yield a client that has found the node of ranks 2 and 3, this node, and the other node, which does not listen."""
    base = free_port()
    found, late = Ranks(base, 2, 3), Ranks(base, 0, 1)
    async with agent(relay, found), tunnels(relay) as client:
        await client.discover_all()
        yield client, found, late


async def pushed(client: Tunnels, ranks: str = "all") -> str:
    outcome = await push_file(client, "train.py", "pass", ranks=ranks, seconds=5)
    return show_outcome("train.py", outcome).splitlines()[0]


async def test_push_waits_for_a_node_that_is_late(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """A push waits for the ranks of a node that does not listen yet, names them, and then includes them."""
    caplog.set_level(logging.WARNING)
    async with half_a_job(relay) as (client, found, late), contextlib.AsyncExitStack() as stack:
        pushing = asyncio.ensure_future(pushed(client))
        async with timeout(DEADLINE):
            while not caplog.messages:
                await asyncio.sleep(0.01)
        assert ["waiting up to 30 s for ranks 0-1, which are not registered"] == caplog.messages
        assert [] == found.pushes
        await stack.enter_async_context(agent(relay, late))
        assert (await pushing).startswith("train.py: replaced in ranks 0-3 while all were held")
        assert Phase.COMMIT in late.pushes


async def test_push_to_half_a_job(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push is refused if ranks are not found in time: no rank receives it, and the hint names the others."""
    monkeypatch.setattr(deliver, "SEARCH_SECONDS", 0.2)
    async with half_a_job(relay) as (client, found, _):
        with pytest.raises(TimedOut) as refused:
            await pushed(client)
        with pytest.raises(TimedOut) as unknown:
            await pushed(client, "2-3,9")
    assert "ranks 0-1 were not found; nothing was changed in any rank" == refused.value.sentence
    assert "add --ranks 2-3 to replace the code in the other ranks only" == refused.value.hint
    assert "rank 9 was not found; nothing was changed in any rank" == unknown.value.sentence
    assert [] == found.pushes
    assert 14 == refused.value.exit_code


async def test_push_without_the_missing_ranks(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """A push to chosen ranks does not wait for other ranks."""
    caplog.set_level(logging.WARNING)
    async with half_a_job(relay) as (client, _, _):
        assert (await pushed(client, "2-3")).startswith("train.py: replaced in ranks 2-3 while all were held")
    assert [] == caplog.messages


async def test_hang_of_half_a_job(relay: LocalRelay) -> None:
    """Ranks that are not found are not known to the verdict: they may have entered the collective."""
    async with half_a_job(relay) as (client, _, _):
        verdicts = [JobVerdict.of(job) for job in read_jobs(await collect_replies(client))]
    plural = NOT_REGISTERED.replace("is not", "are not", 1)
    assert (
        "group 'default' (4 ranks): collective #6 all_reduce [16] float32; entered by ranks 2-3 (12 s ago), "
        f"now at train.py:90 in step (blocked in a call); unknown: ranks 0-1, which {plural}"
    ) == verdict_as_text(verdict_as_object(verdicts))


async def test_stacks_of_half_a_job(relay: LocalRelay) -> None:
    """Ranks that are not found are the first group of the stacks, if they were chosen."""
    async with half_a_job(relay) as (client, _, _):
        replies = await collect_stacks(client, "all", with_locals=False)
        chosen = await collect_stacks(client, "2", with_locals=False)
    first, second, *_ = show_stacks(replies).split("\n\n")
    assert "2 ranks (0-1): no stack: not found" == first
    assert second.startswith("2 ranks (2-3) in step train.py:90")
    assert [2] == [rank for group in grouped_stacks(chosen) for rank in group["ranks"]]


async def test_ranks_that_do_not_exist(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that no process has is an error that names the registered ones; besides others, it is a group."""
    async with half_a_job(relay) as (client, _, _):
        monkeypatch.setattr(Ranks, "answer", lambda _node, _request: asyncio.sleep(0, NodeReplies()))
        for verb in (
            Evaluate("x", ranks="9"),
            Diff("x", ranks="9"),
            Env("9"),
            Stacks("9"),
            Watch("a.py:1", "", "9", watch_id="w"),
        ):
            with pytest.raises(NoListener) as raised:
                await verb.perform(client)
            assert ("no process has rank 9", "use a registered rank: 2-3") == (raised.value.sentence, raised.value.hint)
        monkeypatch.undo()
        text = (await Stacks("2,9").perform(client)).text
    assert "rank 9: no stack: not found" == text.splitlines()[0]


@pytest.mark.parametrize(
    "verb", [Evaluate("x"), Diff("x"), Env("all"), Stacks(), Hang(once=True), Watch("a.py:1", "", watch_id="w"), "push"]
)
async def test_lost_connections(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Verb | str
) -> None:
    """If no rank can be asked, each command fails with the status and the hint of a lost connection."""
    monkeypatch.setattr(examine, "DEADLINE", 0.2)
    monkeypatch.setattr(examine.collect_replies, "__kwdefaults__", {"within": 0.2})
    (file := tmp_path / "train.py").write_text("")
    request = Push(str(file), "train.py", ranks="2-3") if isinstance(verb, str) else verb
    async with half_a_job(relay) as (client, _, _):
        lost = ConnectionLost("there is currently no connection to the agent", hint=RECONNECTING)
        monkeypatch.setattr(client, "open_request", Mock(side_effect=lost))
        with pytest.raises(ConnectionLost) as raised:
            await request.perform(client)
    end = "; nothing was changed in any rank" if verb == "push" else ""
    assert f"no rank can be queried: {lost.sentence}{end}" == raised.value.sentence
    assert RECONNECTING == raised.value.hint


async def test_values_of_half_a_job(relay: LocalRelay) -> None:
    """Ranks that are not found are the first row of the table."""
    async with half_a_job(relay) as (client, _, _):
        text = (await Evaluate("loss").perform(client)).text
    assert ["ranks 0-1  no value: not found", "ranks 2-3  0.25"] == text.splitlines()[:2]


async def test_value_of_a_port_that_is_claimed_twice(relay: LocalRelay) -> None:
    """Only the value in the process that owns the port is returned."""
    async with half_a_job(relay) as (client, found, _), agent(relay, Ranks(min(found.processes) - 2, 2)):
        await client.discover_all()
        values = await collect_values(client, evaluation.Evaluate("loss").checked())
    assert [0, 1, 2, 3] == sorted(member.rank for value in values for member in value.members)


async def test_coding_agent_at_half_a_job(relay: LocalRelay) -> None:
    """A coding agent sees the ranks that are not found, and sets breakpoints in the others only if it names those."""
    async with half_a_job(relay) as (client, _, _):
        ranks = await Reading(client, allow_code=False).ranks()
        async with Control(client) as control:
            with pytest.raises(NoListener, match="no process has ranks 0-1"):
                await control.set_breakpoints("/job/train.py", [90], "", "all")
    assert [(0, "not found"), (1, "not found"), (2, ""), (3, "")] == [(one["rank"], one["text"]) for one in ranks]
