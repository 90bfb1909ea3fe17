"""Facts about the answers to requests."""

import asyncio
from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from relay_agent.node.in_agent.node_answers import NodeAnswers, first_answers
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.event_files import EventDataRequest
from relay_core.agent_api.push import Phase, Push
from relay_core.agent_api.questions import Question, Reply
from relay_core.agent_api.requests import QUESTIONS, Digest, NodeRequest, Response, Wake
from relay_core.agent_api.watch import Watch
from relay_core.errors import ConfigurationError


def no_processes() -> Sequence[RegisteredProcess]:
    return ()


def ignored() -> None: ...


@pytest.mark.parametrize("kind", [*get_args(NodeRequest), *QUESTIONS])
async def test_every_request_has_a_response(monkeypatch: pytest.MonkeyPatch, kind: Callable[..., NodeRequest]) -> None:
    """An agent without processes and files responds to each request, unless it names one of them."""
    monkeypatch.setenv("NCCL_RAS_ENABLE", "0")
    answers = NodeAnswers(no_processes, ignored)
    named = {Wake: (5678,), Digest: (5678, "train.py"), EventDataRequest: ("0/events.out.tfevents.1", 0)}
    if kind in named:
        with pytest.raises(ConfigurationError, match=r"no process on this node has port 5678|not an event file"):
            await answers.answer(kind(*named[kind]))
    else:
        assert isinstance(await answers.answer(kind()), Response)


@pytest.mark.parametrize(("phase", "changes"), [(Phase.HOLD, []), (Phase.COMMIT, ["code"])])
async def test_replaced_code_is_announced(phase: Phase, changes: list[str]) -> None:
    """Of the phases of a push, only the last one changes what processes announce."""
    found: list[str] = []
    await NodeAnswers(no_processes, lambda: found.append("code")).answer(Push("1", phase, "train.py"))
    assert changes == found


class Watching:
    """A process that answers after some seconds; None for never."""

    def __init__(self, seconds: float | None, error: str = "") -> None:
        self.seconds, self.error = seconds, error
        self.was_cancelled = False

    async def reply(self, question: Question) -> Reply:
        try:
            await asyncio.sleep(3600 if self.seconds is None else self.seconds)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return Reply(5678, answer=None if self.error else {}, error=self.error)


async def test_watch_does_not_wait_for_the_slowest_process() -> None:
    """The response has the answers that arrive shortly after the first one; nobody waits for the others any more."""
    processes = [Watching(None), Watching(0.01), Watching(0.0)]
    found = await first_answers(Watch(), processes)
    assert 2 == len(found.processes)
    assert [True, False, False] == [process.was_cancelled for process in processes]


async def test_errors_do_not_end_the_wait_for_hits() -> None:
    """A process that has exited is reported with the first answer of the others, or when all have failed."""
    found = await first_answers(Watch(), [Watching(0.0, "exited"), Watching(0.1)])
    assert ["exited", ""] == [reply.error for reply in found.processes]
    assert 1 == len((await first_answers(Watch(), [Watching(0.0, "exited")])).processes)
