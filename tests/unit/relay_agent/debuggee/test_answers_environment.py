"""Facts about the question `env`, which returns the environment variables of a process without secrets."""

import pytest

from relay_agent.debuggee import answers
from relay_agent.debuggee.answers import read_environment
from relay_core.agent_api.questions import Environment, ReadEnvironment


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long value is cut, and variables that exceed the limits are counted instead."""
    monkeypatch.setattr(answers.os, "environ", {"A": "x" * 5000, "B": "1", "C": "2"})
    monkeypatch.setattr(answers, "MAX_VARIABLES", 2)
    assert Environment({"A": "x" * 4096 + "...", "B": "1"}, 1) == read_environment(ReadEnvironment())
    monkeypatch.setattr(answers, "MAX_CHARACTERS", 100)
    assert Environment({}, 3) == read_environment(ReadEnvironment())
