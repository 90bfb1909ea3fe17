"""Facts about torch's state of a stopped thread."""

from pathlib import Path

import pytest

from tests.support.debuggers.examined_job import stopped_at

SCRIPT = """\
import torch
from relay_agent.values.torch_state import NotRead

class OnGpu:
    def __repr__(self):
        raise NotRead("elements cannot be read")

class Modes:
    def __repr__(self):
        return f"gradients {torch.is_grad_enabled()}, autocast {torch.is_autocast_enabled('cpu')}"

modes = Modes()
number = torch.ones(2, 2, requires_grad=True)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    number.sum()
    number.sum()
"""
STATE = (
    "torch.is_grad_enabled(), torch.is_autocast_enabled('cpu'), (number @ number).dtype, number.mul(2).requires_grad"
)


async def test_expression_sees_the_state_of_the_stopped_thread(tmp_path: Path) -> None:
    """Where a thread stops inside `no_grad` and `autocast`, both also apply to `eval` and to each `repr`.

    The reason why elements are not read replaces the text of a value.
    """
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    async with stopped_at(script, 15) as examined:
        value, place, _ = await examined.ask(STATE)
        assert ("(False, True, torch.bfloat16, False)", "<module> train.py:15") == (value, place)
        assert "gradients False, autocast True" == await examined.value("modes", "hover")
        assert "<elements cannot be read>" == await examined.value("OnGpu()", "repl")
