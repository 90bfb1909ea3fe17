"""Facts about the answers to requests."""

from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from relay_agent.node.in_agent.node_answers import NodeAnswers
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.event_files import EventDataRequest
from relay_core.agent_api.push import Phase, Push
from relay_core.agent_api.requests import QUESTIONS, Digest, NodeRequest, Response, Wake
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
