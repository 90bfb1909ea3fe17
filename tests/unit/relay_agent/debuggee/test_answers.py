"""Facts about the answers of a process to its node's agent."""

import subprocess
import sys
from pathlib import Path

from relay_agent.debuggee.answers import ANSWERS, FUNCTIONS, resolve
from relay_core.agent_api.push import Push
from relay_core.agent_api.requests import QUESTIONS
from relay_core.agent_api.watch import Watch

NAMES = ("pkgutil", "datetime", "random", "resource")
ASK = """
import sys
from types import SimpleNamespace
import relay_agent.api
import relay_agent.debuggee.process
for name in sys.argv[2:]:
    sys.modules.pop(name, None)
sys.path.insert(0, sys.argv[1])
from relay_agent.debuggee.answers import ANSWERS
from relay_agent.node.in_job import client
from relay_agent.node.in_job.reach_agent import _require_descriptors
process = SimpleNamespace(settings=SimpleNamespace(timeouts=None))
ANSWERS["env"](process, {})
ANSWERS["timeouts"](process, {"held": True})
_require_descriptors()
"""


def test_files_with_names_of_the_standard_library(tmp_path: Path) -> None:
    """No file of the job is executed when it is registered and asked."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("print('executed', __name__)\n")
    command = [sys.executable, "-c", ASK, str(tmp_path), *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_each_question_has_a_function_in_the_job() -> None:
    """The agent's questions and the functions of the job that answer them are the same, and each function exists."""
    assert {kind.name for kind in QUESTIONS} == FUNCTIONS.keys() | {Push.name, Watch.name}
    assert {Push.name, Watch.name} < ANSWERS.keys()
    for kind in {*QUESTIONS} - {Push, Watch}:
        assert kind is resolve(FUNCTIONS[kind.name][0])
        assert callable(resolve(FUNCTIONS[kind.name][1]))
        assert kind.name in ANSWERS
