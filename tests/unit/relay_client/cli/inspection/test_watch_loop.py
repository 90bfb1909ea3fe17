"""Facts about the loop of `relay-client watch`, with answers that are prepared."""

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from relay_client.cli.inspection import watch_loop
from relay_client.cli.inspection.watch_loop import WatchLoop
from relay_client.verbs.verb import Answer
from relay_client.verbs.watch import Watch
from relay_core.agent_api.evaluation import Leaf, Selection, Value
from relay_core.agent_api.watch import Compared, Hit
from relay_core.errors import ConnectionLost, NoListener, NoValue, RelayDebugError, Unauthorized
from relay_core.exit_codes import NO_VALUE, SUCCESS
from relay_core.records import encode
from tests.support.machine.deadline import DEADLINE

REQUEST = Watch("train.py:88", "loss", watch_id="w")


class Ranks:
    """Performs the verb: returns or raises the prepared answers, one for each request, and then the one of `always`.

    Without `always`, later requests are not answered. `last` is the answer to the request that removes the watch.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer | Exception) -> None:
        self.requests: list[Watch] = []
        self.always: Answer | Exception | None = None
        self.last: Answer | Exception | None = answer()
        self._answers = iter(answers)
        self._released: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        @contextlib.asynccontextmanager
        async def performing(_arguments: argparse.Namespace) -> AsyncIterator[Any]:
            yield self.perform

        monkeypatch.setattr(watch_loop, "performing", performing)
        monkeypatch.setattr(watch_loop, "INTERVAL", 0.01)

    async def perform(self, request: Watch) -> Answer:
        self.requests.append(request)
        found = self.last if request.is_last else next(self._answers, self.always)
        if found is None:
            found = await self._released
        if isinstance(found, Exception):
            raise found
        assert found is not None
        return found

    def release(self, answer: Answer) -> None:
        """Answer the request that is not answered yet."""
        self._released.set_result(answer)


def answer(*numbers: int, rank: int = 0, **fields: Any) -> Answer:
    """Return the answer of a rank with the hits of these numbers."""
    hits = [encode(Hit(number, number, 1e9, str(number))) for number in numbers]
    state = {"rank": rank, "port": 5678 + rank, "process": "a 1", "place": "step train.py:88", "reached": 7}
    return Answer("", {"ranks": [{**state, "hits": hits, **fields}]})


def loop(request: Watch = REQUEST, *, as_json: bool = False) -> WatchLoop:
    """Return the loop of a watch."""
    return WatchLoop(argparse.Namespace(json=as_json), request)


def values(capfd: pytest.CaptureFixture[str]) -> Sequence[str]:
    """Return the values that were printed."""
    return [line.split()[-1] for line in capfd.readouterr().out.splitlines()]


async def test_number_of_hits(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The loop acknowledges what has arrived, and ends once as many hits as requested were printed, with status 0."""
    ranks = Ranks(monkeypatch, answer(), answer(1, 2), answer(2, 3, 4))
    await (watching := loop(replace(REQUEST, hits=3))).run()
    assert ("the watch has ended (--hits 3)", SUCCESS) == (watching.end, watching.status)
    assert ["1", "2", "3"] == values(capfd)
    assert [[], [0], [2], [4]] == [[*request.after.values()] for request in ranks.requests]
    assert [False, False, False, True] == [request.is_last for request in ranks.requests]


async def test_hits_in_the_first_answer(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """If the first answer has all requested hits, the loop ends without another request for hits."""
    ranks = Ranks(monkeypatch, answer(1))
    await asyncio.wait_for((watching := loop(replace(REQUEST, hits=1))).run(), DEADLINE)
    assert ("the watch has ended (--hits 1)", SUCCESS, ["1"]) == (watching.end, watching.status, values(capfd))
    assert [False, True] == [request.is_last for request in ranks.requests]


async def test_end_in_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop ends once the watch has ended in all ranks; without a value, the status is 17."""
    Ranks(monkeypatch, answer(), answer(ended="after 60 s"))
    await (watching := loop()).run()
    assert ("the watch has ended in all ranks: after 60 s", NO_VALUE) == (watching.end, watching.status)


async def test_end_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once no process has been found for as long as a launcher needs to restart its ranks, the job has ended."""
    monkeypatch.setattr(watch_loop, "RESTART_SECONDS", 0.2)
    ranks = Ranks(monkeypatch, answer(1))
    ranks.always = NoListener("no matching process is registered")
    await asyncio.wait_for((watching := loop()).run(), DEADLINE)
    assert ("all ranks have ended", SUCCESS) == (watching.end, watching.status)
    assert 3 < len(ranks.requests)


async def test_restarted_job(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Without processes for a shorter time, the watch continues, and also after a lost connection."""
    errors = [NoListener("no matching process is registered"), ConnectionLost("the relay-client has exited")]
    Ranks(monkeypatch, answer(1), *errors, answer(2, process="a 2"))
    await (watching := loop(replace(REQUEST, hits=2))).run()
    assert ("the watch has ended (--hits 2)", ["1", "2"]) == (watching.end, values(capfd))


async def test_failures(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The first failure after an answer is printed, with what happens next, and so is the next answer."""
    lost, gone = ConnectionLost("the relay-client has exited"), NoListener("no matching process is registered")
    Ranks(monkeypatch, answer(), lost, lost, answer(), gone, gone, answer(), lost, answer(1))
    await loop(replace(REQUEST, hits=1)).run()
    assert [
        "watching train.py:88 in rank 0, for 1 h or until Ctrl-C",
        "the relay-client has exited; the watch continues",
        "the ranks answer again",
        "no matching process is registered; waiting up to 10 s for a restart",
        "the ranks answer again",
        "the relay-client has exited; the watch continues",
        "the ranks answer again",
        "the watch has ended (--hits 1)",
    ] == capfd.readouterr().err.splitlines()[:8]


async def test_comparison(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Once ranks differ, the next requests contain the part of the value that the search needs."""

    def both(number: int, selection: Selection, *values: Value) -> Answer:
        compared = [Compared(value, selection, "all") for value in values]
        hits = [Hit(number, number, 1e9, f"step {number}", compared=each) for each in compared]
        ranks = [{"rank": rank, "port": 5678 + rank, "process": "a 1", "place": "p"} for rank in range(2)]
        return Answer("", {"ranks": [{**ranks[rank], "hits": [encode(hits[rank])]} for rank in range(2)]})

    one, other = (Value(digest=text, leaves=2, parts=("aaaaaa", text)) for text in ("bbbbbb", "cccccc"))
    part = Selection(1, 2)
    ended = [replace(each, leaf=Leaf("w", text)) for each, text in ((one, "1"), (other, "2"))]
    differ = (both(number, selection, one, other) for number, selection in ((2, Selection()), (3, Selection(0, 2))))
    ranks = Ranks(monkeypatch, both(1, Selection(), one, one), *differ, both(4, part, *ended))
    await asyncio.wait_for((watching := loop(Watch("diverge", "model", watch_id="w"))).run(), DEADLINE)
    assert [None, None, Selection(0, 2), part, None] == [request.selection for request in ranks.requests]
    assert ("the watch has ended: the ranks differ", SUCCESS) == (watching.end, watching.status)
    assert "step 4: rank 0  first differs at 'w': 1 instead of 2" in capfd.readouterr().out


async def test_silence(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Ranks that do not answer, as if the relay had ended, are named once, and again when they answer."""
    monkeypatch.setattr(watch_loop, "SILENCE", 0.0)
    monkeypatch.setattr(watch_loop, "POLL_WAIT", 0.0)
    ranks = Ranks(monkeypatch, answer(1))
    watched = asyncio.ensure_future(loop(replace(REQUEST, hits=2)).run())
    printed = ""
    while "the ranks do not answer" not in (printed := printed + capfd.readouterr().err):
        await asyncio.sleep(0.01)
    ranks.release(answer(2))
    await asyncio.wait_for(watched, DEADLINE)
    printed += capfd.readouterr().err
    assert (1, 1) == (printed.count("the ranks do not answer"), printed.count("the ranks answer again"))


async def test_silence_at_the_end(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """If no rank answers the last request, no line claims that the watch continues."""
    monkeypatch.setattr(watch_loop, "SILENCE", 0.0)
    monkeypatch.setattr(watch_loop, "LAST_SECONDS", -0.9)
    ranks = Ranks(monkeypatch, answer(1, ended="after 1 hit"))
    ranks.last = None
    await loop().run()
    assert ranks.requests[-1].is_last
    assert "the watch continues" not in capfd.readouterr().err


async def test_no_hits_before_the_end(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A watch that ends without a hit prints the reason, however short it was."""
    Ranks(monkeypatch, answer()).always = answer()
    await loop(replace(REQUEST, lasts=0.05)).run()
    assert "no hit yet: the ranks have reached step train.py:88 7x" in capfd.readouterr().err


async def test_end_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch ends after its duration, and asks no longer than that."""
    ranks = Ranks(monkeypatch, answer(1))
    ranks.always = answer()
    await (watching := loop(replace(REQUEST, lasts=0.2))).run()
    assert ("the watch has ended after 0.2 s", SUCCESS) == (watching.end, watching.status)
    assert all(request.wait <= 0.2 for request in ranks.requests)


async def test_permanent_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """An error that cannot pass ends the watch, after it was removed and the table was printed."""
    ranks = Ranks(monkeypatch, answer(1), Unauthorized("the relay refused the key"))
    with pytest.raises(Unauthorized):
        await loop().run()
    assert ranks.requests[-1].is_last
    assert "cost: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("first", "error"),
    [
        (answer(error="SyntaxError: invalid syntax", place=""), NoValue),
        (NoListener("no process has rank 9"), NoListener),
    ],
)
async def test_no_rank_can_watch(
    monkeypatch: pytest.MonkeyPatch, first: object, error: type[RelayDebugError], capfd: pytest.CaptureFixture[str]
) -> None:
    """If no rank can watch the line, the loop fails immediately, without a table."""
    ranks = Ranks(monkeypatch, first)
    with pytest.raises(error) as raised:
        await loop().run()
    assert 1 == len(ranks.requests)
    printed = capfd.readouterr()
    assert "" == printed.out
    if error is NoValue:
        assert (NO_VALUE, "no rank can watch train.py:88") == (raised.value.exit_code, str(raised.value))
        assert "rank 0: SyntaxError: invalid syntax\n" == printed.err


@pytest.mark.parametrize("answers", [[], [answer(1)]])
@pytest.mark.parametrize("as_json", [False, True])
async def test_interrupted(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C removes the watch, also during the first request, which may already have installed it."""
    ranks = Ranks(monkeypatch, *answers)
    ranks.last = answer() if answers else NoListener("no matching process is registered")
    task = asyncio.ensure_future((watching := loop(as_json=as_json)).run())
    while len(ranks.requests) <= len(answers):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ranks.requests[-1].is_last
    assert SUCCESS == watching.status
    printed = capfd.readouterr()
    if as_json:
        last = json.loads(printed.out.splitlines()[-1])
        assert ("ended", "the watch was stopped", len(answers)) == (last["event"], last["text"], len(last["ranks"]))
    else:
        assert "the watch was stopped\n" in printed.err
        assert bool(answers) == ("cost: " in printed.err)


async def test_last_hits(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The hits in the answer that removes the watch are printed; those that were repeated are printed once."""
    ranks = Ranks(monkeypatch, answer(1), answer(1, 2), answer(1, 2, ended="after 3 hits"))
    ranks.last = answer(2, 3)
    await loop().run()
    assert ranks.requests[-1].is_last
    assert ["1", "2", "3"] == values(capfd)
