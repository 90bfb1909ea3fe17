"""Facts about the expressions that a coding agent may evaluate if it may only read."""

import pytest

from relay_agent.values.static_path import read_path
from relay_client.mcp.reading import ControlRefused, as_static_read
from relay_core.agent_api.evaluation import PATH_READER

REFUSED = (
    *("f()", "x.f()", "x + 1", "-x", "[x]", "x[y]", "x[0:2]", "x[b'a']", "x[1.5]", "x[True]", "f'{x}'", "lambda: x"),
    *("(y := x)", "x if y else z", "[a for a in x]", "await x", "3", "x < y", "x[(1, 2)]", "x[f()]"),
)
NO_EXPRESSION = ("import os", "x; y", "x = 1", "", "x[", "foo(", "x\0", "*x", "(" * 5000)


@pytest.mark.parametrize("expression", [*REFUSED, *NO_EXPRESSION])
def test_what_could_execute_code(expression: str):
    """Calls, operators, formats, computed keys and statements are refused, with a hint at --allow-control."""
    with pytest.raises(ControlRefused, match="could execute code|is not a path") as caught:
        as_static_read(expression)
    assert "--allow-control" in caught.value.hint


def test_single_name():
    """A name needs no reader in the job."""
    assert "loss" == as_static_read(" loss ")


def test_path():
    """A path becomes a call of the reader, which has the steps in their order and nothing else."""
    expected = f"{PATH_READER}(model, ('attribute', 'layers'), ('element', -1), ('element', \"it's\"))"
    assert expected == as_static_read('model.layers[-1]["it\'s"]')


def test_path_is_read():
    """The expression that is sent yields what the path leads to."""

    class Box:
        def __init__(self):
            self.items = {"rates": [0.1, 0.2]}

    names = {"box": Box(), PATH_READER: read_path}  # as in the agent
    assert 0.2 == eval(as_static_read("box.items['rates'][1]"), names)
