"""Facts about the question `env`, which returns the environment variables of a process without secrets."""

import pytest

from relay_agent.debuggee import answers
from relay_agent.debuggee.answers import read_environment
from relay_agent.settings.environment import REGISTERED
from relay_core.agent_api.questions import Environment, ReadEnvironment


def test_a_variable_for_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that differs between all registered processes is left out."""
    monkeypatch.setattr(answers.os, "environ", {"A": "1", REGISTERED: "12 5678 rank 0"})
    assert Environment({"A": "1"}) == read_environment(ReadEnvironment())


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long value is cut, and variables that exceed the limits are counted instead."""
    monkeypatch.setattr(answers.os, "environ", {"A": "x" * 5000, "B": "1", "C": "2"})
    monkeypatch.setattr(answers, "MAX_VARIABLES", 2)
    assert Environment({"A": "x" * 4096 + "...", "B": "1"}, 1) == read_environment(ReadEnvironment())
    monkeypatch.setattr(answers, "MAX_CHARACTERS", 100)
    assert Environment({}, 3) == read_environment(ReadEnvironment())
