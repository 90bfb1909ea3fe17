"""Facts about the answers of a process to its node's agent."""

from pkgutil import resolve_name

from relay_agent.debuggee.answers import ANSWERS, FUNCTIONS
from relay_core.agent_api.push import Push
from relay_core.agent_api.requests import QUESTIONS


def test_each_question_has_a_function_in_the_job() -> None:
    """The agent's questions and the functions of the job that answer them are the same, and each function exists."""
    assert {kind.name for kind in QUESTIONS} == FUNCTIONS.keys() | {Push.name}
    assert Push.name in ANSWERS
    for kind in {*QUESTIONS} - {Push}:
        assert kind is resolve_name(FUNCTIONS[kind.name][0])
        assert callable(resolve_name(FUNCTIONS[kind.name][1]))
        assert kind.name in ANSWERS
