"""Facts about hooks by `sys.monitoring`."""

import sys
from typing import Any

import pytest

from tests.unit.relay_agent.trigger.conftest import Watched

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 has sys.monitoring")
monitoring: Any = getattr(sys, "monitoring", None)
SOURCE = """\
def step(loss):
    first = loss  # first
    return first  # second

def other():
    return 1
"""


def test_tool_id_is_used_only_while_something_is_watched(watched: Watched) -> None:
    """The tool id is free before the first watch and after the last one, and no code object has events then."""
    train, client = watched(SOURCE)
    client.ask("first")
    assert "relay-debug watch" == monitoring.get_tool(3)
    assert monitoring.events.LINE == monitoring.get_local_events(3, train.step.__code__)
    assert 0 == monitoring.get_local_events(3, train.other.__code__)
    client.ask("first", is_last=True)
    assert monitoring.get_tool(3) is None
    monitoring.use_tool_id(3, "test")
    assert 0 == monitoring.get_local_events(3, train.step.__code__)
    monitoring.free_tool_id(3)


def test_tool_ids_of_others(watched: Watched) -> None:
    """If the first id is taken, the second one is used; if both are, the error names the tools."""
    _, client = watched(SOURCE)
    monitoring.use_tool_id(3, "one")
    try:
        client.ask("first")
        assert "relay-debug watch" == monitoring.get_tool(4)
        client.ask("first", is_last=True)
        monitoring.use_tool_id(4, "other")
        error = client.ask("first", id="again").error
        assert "Python's monitoring is in use: tool id 3 by one and 4 by other" in error
        assert "one" == monitoring.get_tool(3)
    finally:
        monitoring.free_tool_id(3)
        monitoring.free_tool_id(4)


def test_second_line_of_a_function(watched: Watched) -> None:
    """A line that was reached before somebody watched it is reported from then on."""
    train, client = watched(SOURCE)
    client.ask("first", "loss")
    train.step(1)
    client.ask("second", "first")
    train.step(2)
    assert ["1", "2"] == client.texts("first", "loss")
    assert ["2"] == client.texts("second", "first")
