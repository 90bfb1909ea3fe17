"""Facts about the verb `watch`."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from relay_client.agents import requests
from relay_client.verbs.verb import Session
from relay_client.verbs.watch import Watch, parse_place
from relay_core.agent_api.evaluation import MAX_SHOWN, Selection
from relay_core.agent_api.questions import NodeReplies, Question, Reply
from relay_core.agent_api.requests import Ready, Wake
from relay_core.agent_api.watch import Hit, Watched
from relay_core.agent_api.watch import Watch as WatchQuestion
from relay_core.errors import NoListener, UsageError
from relay_core.records import encode
from tests.support.machine.deadline import DEADLINE
from tests.support.network.fleet import Node, agent, process, tunnels
from tests.support.network.relay import LocalRelay

POLL = Watch("train.py:88", "loss", watch_id="w", wait=3600.0)


class WatchedNode(Node):
    """A node whose one process has reported a hit at some time; until then, it does not answer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hit = asyncio.Event()
        self.asked = asyncio.Event()
        self.delay = 0.0
        self.text = "0.5\n\x1b[31m1"
        self.named = 0
        """The port that its answers name; 0 for that of its process."""
        self.questions: list[WatchQuestion] = []

    async def answer(self, request: Wake | Question) -> Ready | NodeReplies:
        if not isinstance(request, WatchQuestion):
            return await super().answer(request)
        self.questions.append(request)
        self.asked.set()
        if request.wait:
            await self.hit.wait()
        await asyncio.sleep(self.delay)
        (target,) = self.targets()
        if not request.selects(target.fields["rank"], target.logical_port):
            return NodeReplies()
        hits = (Hit(1, 7, 1e9, self.text),) if self.hit.is_set() else ()
        state = Watched(hits, "step train.py:88", 7)
        return NodeReplies((Reply(self.named or target.logical_port, target.fields["rank"], encode(state), pid=12),))


def ranks_in(answer: Any) -> Mapping[int, Mapping[str, Any]]:
    """Return the entries of an answer by rank."""
    return {entry["rank"]: entry for entry in answer.data["ranks"]}


@pytest.fixture
async def nodes(relay: LocalRelay) -> Any:
    """Two agents with one rank each."""
    async with (
        process(5678, rank=0, world=2, base_port=5678) as first,
        process(5679, rank=1, world=2, base_port=5678) as second,
    ):
        found = WatchedNode(first), WatchedNode(second)
        async with agent(relay, found[0]), agent(relay, found[1]):
            yield found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.py:88", ("train.py", 88)),
        ("models/net.py:1", ("models/net.py", 1)),
        ("C:\\src\\train.py:88", ("C:\\src\\train.py", 88)),
        ("C:/src/train.py:88", ("C:/src/train.py", 88)),
        ("/a b/train.py:88:5", ("/a b/train.py", 88)),
        ("a:b.py:3", ("a:b.py", 3)),
        ("nan:3", ("nan", 3)),
    ],
)
def test_place(text: str, place: tuple[str, int]) -> None:
    """A place is a file and a line, also with a drive letter, and with a column as editors copy it."""
    assert place == parse_place(text)


@pytest.mark.parametrize(
    "text", ["", "train.py", ":88", "train.py:", "train.py:0", "train.py:-1", "C:\\train.py", "88"]
)
def test_no_place(text: str) -> None:
    """Anything else is refused, with an example."""
    with pytest.raises(UsageError, match="invalid place: ") as raised:
        parse_place(text)
    assert "use FILE:LINE, such as train.py:88, or nan or diverge" == raised.value.hint


@pytest.mark.parametrize(
    ("request_", "gradients", "is_capturing", "is_holding", "hits"),
    [
        (Watch("train.py:88", "loss", watch_id="w"), False, False, False, 0),
        (Watch("train.py:88", "loss", watch_id="w", then="capture"), False, True, False, 1),
        (Watch("train.py:88", "loss", watch_id="w", then="hold"), False, False, True, 1),
        (Watch("nan", watch_id="w"), True, False, False, 1),
        (Watch("nan", watch_id="w", then="hold", hits=3), True, False, True, 3),
    ],
)
def test_question(request_: Watch, gradients: bool, is_capturing: bool, is_holding: bool, hits: int) -> None:
    """A watch of gradients, or that captures or holds, ends after one hit by default; others have no limit."""
    question = request_.question()
    found = (question.gradients, question.is_capturing, question.is_holding, question.hits)
    assert (gradients, is_capturing, is_holding, hits) == found


@pytest.mark.parametrize("selection", [None, Selection(2, 3, (0, 8))])
def test_comparison(selection: Selection | None) -> None:
    """A comparison of ranks contains what is compared: the whole value, or the part that is being searched."""
    question = Watch("diverge", "model", every=100, watch_id="w").after_hits({}, selection=selection).question()
    assert (selection or Selection(), False, 0, 100) == (
        question.selection,
        question.gradients,
        question.hits,
        question.every,
    )
    assert Watch("train.py:88", "loss", watch_id="w").question().selection is None


@pytest.mark.parametrize("fields", [{"when": "a"}, {"hits": 3}, {"then": "capture"}, {"expression": ""}])
def test_option_that_a_comparison_does_not_have(fields: dict[str, Any]) -> None:
    """An option that a comparison would ignore is refused, and so is one without a value to compare."""
    with pytest.raises(UsageError, match="a comparison ends at a difference|an expression is missing"):
        Watch("diverge", **{"expression": "model", "watch_id": "w", **fields}).question()


def test_unknown_action() -> None:
    """What cannot happen at a hit is refused, with what can."""
    with pytest.raises(UsageError, match="invalid action: 'stop'") as raised:
        Watch("train.py:88", watch_id="w", then="stop").question()
    assert "use report, capture or hold" == raised.value.hint


async def test_first_agent_with_hits(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """An answer does not wait for agents without hits; the others' next one acknowledges what has arrived."""
    first, second = nodes
    async with tunnels(relay) as client:
        session = Session(client)
        installed = ranks_in(await session.perform(Watch("train.py:88", "loss", watch_id="w")))
        assert {0, 1} == set(installed)
        first.hit.set()
        found = ranks_in(await session.perform(POLL))
        assert [0] == list(found)
        assert ("0.5\n\\x1b[31m1", 7, 5678) == (found[0]["hits"][0]["text"], found[0]["reached"], found[0]["port"])
        first.hit.clear()
        second.hit.set()
        after = {"5678": 1, "5679": 0}
        assert [1] == list(ranks_in(await session.perform(replace(POLL, after=after))))
        assert after == second.questions[-1].after
        assert {"w"} == {question.id for node in nodes for question in node.questions}


async def test_port_of_another_agent(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """What an agent answers about a port that another agent has registered is left out."""
    _, second = nodes
    second.named, second.delay = 5678, 5 * requests.GRACE
    second.hit.set()
    async with tunnels(relay) as client:
        found = ranks_in(await Session(client).perform(Watch("train.py:88", "loss", watch_id="w")))
    assert ([0], ()) == ([*found], tuple(found[0].get("hits", ())))


async def test_port_that_nobody_has(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """What an agent answers about a port that it has not registered is left out, also if nobody else has."""
    nodes[0].named = 7000
    async with tunnels(relay) as client:
        found = await Session(client).perform(Watch("train.py:88", "loss", watch_id="w"))
    assert [1] == list(ranks_in(found))


async def test_long_texts(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """A text that is longer than any value a process sends is cut."""
    nodes[0].text = "x" * 100_000
    nodes[0].hit.set()
    async with tunnels(relay) as client:
        found = ranks_in(await Session(client).perform(Watch("train.py:88", "loss", watch_id="w")))
    assert MAX_SHOWN == len(found[0]["hits"][0]["text"])


async def test_ranks_that_do_not_exist(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """If no process has the rank, the error names those that are registered; otherwise, the rank is not found."""
    async with tunnels(relay) as client:
        session = Session(client)
        with pytest.raises(NoListener) as raised:
            await session.perform(Watch("train.py:88", "loss", watch_id="w", ranks="9"))
        found = ranks_in(await session.perform(Watch("train.py:88", "loss", watch_id="w", ranks="0,9")))
    assert "no process has rank 9. hint: use a registered rank: 0-1" == str(raised.value)
    assert {0: "", 9: "not found"} == {rank: entry.get("error", "") for rank, entry in found.items()}


async def test_slow_agent(
    relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent behind a slow link is not kept from answering by one that always has hits."""
    monkeypatch.setattr(requests, "ROUND_TRIP", DEADLINE)  # of a slow machine
    first, second = nodes
    second.delay = 5 * requests.GRACE
    async with tunnels(relay) as client:
        session = Session(client)
        await session.perform(Watch("train.py:88", "loss", watch_id="w"))
        first.hit.set()
        second.hit.set()
        assert {0, 1} == set(ranks_in(await session.perform(POLL)))


async def test_agent_without_answer(relay: LocalRelay, nodes: tuple[WatchedNode, WatchedNode]) -> None:
    """The last question asks all agents, and states which rank has not answered in time."""
    first, second = nodes
    second.delay = 3600.0
    async with tunnels(relay) as client:
        session = Session(client)
        found = ranks_in(await session.perform(Watch("train.py:88", "loss", watch_id="w", is_last=True)))
    assert ("", "the agent did not answer 'watch' within 2 s") == (found[0].get("error", ""), found[1]["error"])
    assert found[1]["is_silent"]
    assert first.questions[-1].is_last
