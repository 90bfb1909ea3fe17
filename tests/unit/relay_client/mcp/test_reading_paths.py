"""Facts about the expressions that a coding agent may evaluate if it may only read."""

import pytest

from relay_client.compare.paths import as_plain_read
from relay_client.mcp.reading import ControlRefused, as_read

REFUSED = (
    *("f()", "x.f()", "x + 1", "-x", "[x]", "x[y]", "x[0:2]", "x[b'a']", "x[1.5]", "x[True]", "f'{x}'", "lambda: x"),
    *("(y := x)", "x if y else z", "[a for a in x]", "await x", "3", "x < y", "x[(1, 2)]", "x[f()]"),
)
NO_EXPRESSION = ("import os", "x; y", "x = 1", "", "x[", "foo(", "x\0", "*x", "(" * 5000)


@pytest.mark.parametrize("expression", [*REFUSED, *NO_EXPRESSION])
def test_what_could_execute_code(expression: str):
    """Calls, operators, formats, computed keys and statements are refused, with a hint at --allow-control."""
    with pytest.raises(ControlRefused, match="could execute code|is not a path") as caught:
        as_read(expression, completely=False)
    assert "--allow-control" in caught.value.hint


@pytest.mark.parametrize("completely", [True, False])
def test_path(completely: bool):
    """A path is read as for the page."""
    expected = as_plain_read("model.layers[-1]", completely=completely)
    assert expected == as_read("model.layers[-1]", completely=completely)
