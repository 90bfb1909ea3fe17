"""Facts about the announcement of how a target has ended."""

import json

from hypothesis import given

from relay_core.agent_api.announcement import Ending
from relay_core.records import encode, parse_or_none
from tests.unit.relay_core.agent_api.strategies import ENDINGS


@given(ENDINGS)
def test_what_is_encoded_is_read_again(ending: Ending) -> None:
    """Every ending survives JSON."""
    assert ending == parse_or_none(Ending, json.loads(json.dumps(encode(ending))))


def test_invalid_fields_count_as_missing() -> None:
    """Values out of range or of another type are ignored; without a port the ending is ignored."""
    assert Ending(5678) == parse_or_none(Ending, {"port": 5678, "status": 256, "signal": -9, "pid": "x", "error": 3})
    assert [None, None] == [parse_or_none(Ending, {"port": 0, "status": 1}), parse_or_none(Ending, "ended")]
