"""Facts about searches that an agent offers for values which differ from those of other nodes."""

from dataclasses import replace

import numpy as np
import pytest

from relay_agent.node.in_agent import node_answers
from relay_agent.node.in_agent.node_answers import OfferedSearches
from relay_core.agent_api.evaluation import Evaluate, NodeValues, SearchStart, SearchStep, Selection, Value
from relay_core.agent_api.members import Member
from relay_core.difference_search import PairedValues
from relay_core.errors import ConfigurationError
from tests.support.valued_process import ValuedProcess

REQUEST = Evaluate("weight", selection=Selection(), is_message=True)


async def offered(searches: OfferedSearches, *ranks: ValuedProcess, request: Evaluate = REQUEST) -> list[Value]:
    """Return the values that a client receives."""
    values = [await rank.evaluate(request) for rank in ranks]
    response = NodeValues(searches.offer(request, ranks, values), request.is_message)
    return list(NodeValues.parse(response.encode()).values)


async def test_two_agents_find_the_difference() -> None:
    """Agents that have only a value each find the first difference; their values have no checksums of parts."""
    nodes = [OfferedSearches(), OfferedSearches()]
    weight = np.ones(100_000, "float32")
    weight[77_777:] = 0.5
    (one,) = await offered(nodes[0], ValuedProcess(0, weight))
    (other,) = await offered(nodes[1], ValuedProcess(1, np.ones(100_000, "float32")))
    assert ((), 5678, 5679) == (one.parts, one.starts[0].port, other.starts[0].port)
    client = PairedValues(other.starts[0])
    while (asked := client.next()) is not None:
        side, message = asked
        client.received(await nodes[side].answer(SearchStep((one, other)[side].starts[0].token, message)))
    assert client.difference is not None
    assert (77_777, "0.5", "1") == (client.difference.element, client.difference.first, client.difference.second)


async def test_no_search_is_offered() -> None:
    """Nothing is offered for a process without a value, for parts of values, and to a client that uses a stream."""
    rank, failed = ValuedProcess(0, np.ones(240)), ValuedProcess(1, None)
    values = await offered(OfferedSearches(), rank, failed)
    assert [1, 0] == [len(value.starts) for value in values]
    for request in (replace(REQUEST, is_message=False), replace(REQUEST, selection=Selection(0, 1))):
        (value,) = await offered(OfferedSearches(), rank, request=request)
        assert ((), 24) == (value.starts, len(value.parts))


async def test_old_searches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent keeps a limited number of searches; a step of an older one is an error."""
    monkeypatch.setattr(node_answers, "MAX_SEARCHES", 2)
    monkeypatch.setattr(node_answers, "MAX_TOKEN", 4)
    searches = OfferedSearches()
    tokens = [(await offered(searches, ValuedProcess(0, np.ones(100))))[0].starts[0].token for _ in range(6)]
    assert [0, 1, 2, 3, 0, 1] == tokens
    assert "<OfferedSearches 2>" == repr(searches)
    with pytest.raises(ConfigurationError, match="expired"):
        await searches.answer(SearchStep(3, b"\0"))
    assert await searches.answer(SearchStep(1, b"\0"))


def test_value_with_a_search_is_short() -> None:
    """In a message, a value that has only a search is sent without the names of its fields."""
    value = Value((Member(5678, 0),), place="__main__", digest="d", leaves=1, starts=(SearchStart(5678, 0, b"a"),))
    failed = Value((Member(5679, 1),), error="e")
    fields = [[[5678, 0]], "__main__", "d", 1, "AABh"]
    assert {"values": [fields, {"members": [[5679, 1]], "error": "e"}]} == NodeValues((value, failed), True).encode()
    assert (value, failed) == NodeValues.parse({"values": [fields, failed.encode()]}).values


def test_start_on_the_wire() -> None:
    """A search survives its encoding; a field that is not a search is ignored."""
    start = SearchStart(5678, 258, b"abc")
    assert "AQJhYmM=" == start.encode()
    assert start == SearchStart.parse(start.encode(), 5678)
    assert [None, None, None] == [SearchStart.parse(value, 5678) for value in ("", "x", None)]
