"""Facts about the announcement of how a target has ended."""

import json

from hypothesis import given

from relay_core.agent_api.ending import Ending
from tests.unit.relay_core.agent_api.strategies import ENDINGS


@given(ENDINGS)
def test_what_is_encoded_is_read_again(ending: Ending) -> None:
    """Every ending survives JSON."""
    assert ending == Ending.parse(json.loads(json.dumps(ending.encode())))


def test_invalid_fields_count_as_missing() -> None:
    """Values out of range or of another type are ignored; without a port the ending is ignored."""
    assert Ending(5678) == Ending.parse({"port": 5678, "status": 256, "signal": -9, "pid": "x", "error": 3})
    assert [None, None] == [Ending.parse({"port": 0, "status": 1}), Ending.parse("ended")]
