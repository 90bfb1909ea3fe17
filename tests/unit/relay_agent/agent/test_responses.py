"""Facts about requests that a client sends as messages."""

import json
import logging
from typing import Any

import pytest

from relay_agent.agent.port_targets import PortTargets
from relay_agent.agent.responses import respond_to_message
from relay_core.agent_api.evaluation import Evaluate, NodeValues, SearchStep, Selection, Value
from relay_core.agent_api.members import Member


class Node(PortTargets):
    """Values of a process, and a search."""

    def __init__(self) -> None:
        super().__init__({})

    async def answer(self, request: Any) -> Any:
        assert Evaluate("loss", selection=Selection(), is_message=True) == request
        return NodeValues((Value((Member(5678, 0),), digest="d"),))

    async def search(self, step: SearchStep) -> bytes:
        return step.data[::-1] if step.token else await super().search(step)


async def response_to(body: bytes) -> bytes:
    """Return the response to a message of alice."""
    responses: list[bytes] = []
    await respond_to_message(Node(), body, "alice@laptop", responses.append)
    (response,) = responses
    return response


async def test_evaluation(caplog: pytest.LogCaptureFixture) -> None:
    """The response to an expression is compact JSON; the log has the user."""
    caplog.set_level(logging.INFO)
    assert b'{"values":[{"members":[[5678,0]],"digest":"d"}]}' == await response_to(
        b'{"expression": "loss", "selection": [0]}'
    )
    assert ["evaluating an expression in all ranks for alice@laptop"] == caplog.messages


async def test_search() -> None:
    """The response to a step of a search is bytes, or the reason why there is none."""
    assert b"cba" == await response_to(SearchStep(1, b"abc").encode())
    failure = json.loads(await response_to(SearchStep(0, b"abc").encode()))
    assert "this agent serves ports, not processes; it has no values to compare" == failure["error"]


@pytest.mark.parametrize("body", [b"", b"x", b"{}", b"[1]"])
async def test_invalid_message(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A message that is not a request also has a response, and a line in the log."""
    assert json.loads(await response_to(body))["error"]
    (line,) = caplog.messages
    assert line.startswith("a request from alice@laptop failed: ")
