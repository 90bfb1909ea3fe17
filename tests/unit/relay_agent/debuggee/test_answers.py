"""Facts about the answers of a process to its node's agent."""

from importlib import import_module

from relay_agent.debuggee.answers import ANSWERS, FUNCTIONS
from relay_core.agent_api.questions import QUESTIONS


def test_each_question_has_a_function_in_the_job() -> None:
    """The agent's questions and the functions of the job that answer them are the same, and each function exists."""
    assert {kind.name for kind in QUESTIONS} == FUNCTIONS.keys()
    for name, path in FUNCTIONS.items():
        module, _, function = path.partition(":")
        assert callable(getattr(import_module(module), function))
        assert name in ANSWERS
