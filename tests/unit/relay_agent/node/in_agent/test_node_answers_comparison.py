"""Facts about the comparison of a value among the processes of a node, with the job's own checksums."""

import asyncio
from typing import Any

import numpy as np
import pytest

from relay_agent.node.in_agent import node_answers
from relay_agent.node.in_agent.node_answers import compare
from relay_core.agent_api.evaluation import Difference, Evaluate, Selection, Value
from relay_core.agent_api.questions import Reply
from tests.support.jobs.valued_process import ValuedProcess

COMPLETE = Evaluate("weight", selection=Selection())


def weight(wrong: int | None = None) -> Any:
    found = np.ones(100_000, "float32")
    if wrong is not None:
        found[wrong:] = 0.5
    return found


async def compared(request: Evaluate, ranks: list[ValuedProcess]) -> list[Value]:
    return [reply.result(Value) for reply in (await compare(request, ranks)).processes]


async def test_odd_rank_has_a_difference() -> None:
    """The agent finds where the odd rank differs from the most common value; ranks without a value are left alone."""
    ranks = [
        ValuedProcess(0, weight()),
        ValuedProcess(1, weight(77_777)),
        ValuedProcess(2, weight()),
        ValuedProcess(3, None),
    ]
    usual, odd, other, failed = await compared(COMPLETE, ranks)
    assert [(0, None), (2, None)] == [(value.members[0].rank, value.difference) for value in (usual, other)]
    expected = Difference("", "(100000,) float32", 77_777, "0.5", "1", other=usual.digest)
    assert (1, expected) == (odd.members[0].rank, odd.difference)
    assert (3, None, [Selection()]) == (failed.members[0].rank, failed.difference, ranks[3].asked)


async def test_nothing_is_searched_unless_complete_values_differ() -> None:
    """Equal values, values as text and parts of values cause one request to each process."""
    for request, second in [
        (COMPLETE, weight()),
        (Evaluate("weight"), weight(5)),
        (Evaluate("weight", selection=Selection(0, 1, (0, 16))), weight(5)),
    ]:
        ranks = [ValuedProcess(0, weight()), ValuedProcess(1, second)]
        assert all(value.difference is None for value in await compared(request, ranks))
        assert [1, 1] == [len(rank.asked) for rank in ranks]


async def test_search_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit, the values are returned without a difference."""

    class Slow(ValuedProcess):
        async def reply(self, question: Evaluate) -> Reply:
            if self.asked:
                await asyncio.Event().wait()
            return await super().reply(question)

    monkeypatch.setattr(node_answers, "SEARCH_SECONDS", 0.05)
    found = await compared(COMPLETE, [Slow(0, weight()), Slow(1, weight(3))])
    assert [(0, None), (1, None)] == [(value.members[0].rank, value.difference) for value in found]
