"""Facts about paths that are read without executing code."""

import pytest

from relay_agent.values.plain import read_plain
from relay_client.compare.paths import as_plain_read
from relay_core.agent_api.evaluation import PLAIN_READER
from relay_core.errors import UsageError
from tests.unit.relay_client.mcp.test_reading_paths import NO_EXPRESSION, REFUSED


@pytest.mark.parametrize("expression", REFUSED)
@pytest.mark.parametrize("completely", [True, False])
def test_what_could_execute_code(expression: str, completely: bool):
    """Everything but a path is refused, with a hint at what is allowed."""
    with pytest.raises(UsageError, match="could execute code") as caught:
        as_plain_read(expression, completely=completely)
    assert "names, attributes and constant indices or keys" in caught.value.hint


@pytest.mark.parametrize("expression", NO_EXPRESSION)
def test_what_is_no_expression(expression: str):
    """Of a text that Python cannot parse, the error states only that it is not a path."""
    with pytest.raises(UsageError, match="' is not a path") as caught:
        as_plain_read(expression, completely=False)
    assert "names, attributes and constant indices or keys" in caught.value.hint


def test_path():
    """A path, even a single name, becomes a call of the reader, which has the steps in their order and nothing else."""
    assert f"{PLAIN_READER}(101, 'loss', loss)" == as_plain_read(" loss ", completely=False)
    expected = f"{PLAIN_READER}(None, 'model', model, ('attribute', 'layers'), ('element', -1), ('element', \"it's\"))"
    assert expected == as_plain_read('model.layers[-1]["it\'s"]', completely=True)


def test_path_is_read():
    """The expression that is sent yields a copy of what the path leads to."""
    names = {"rates": {"a": [0.1, 0.2]}, PLAIN_READER: read_plain}  # as in the agent
    assert [0.1, 0.2] == eval(as_plain_read("rates['a']", completely=False), names)
