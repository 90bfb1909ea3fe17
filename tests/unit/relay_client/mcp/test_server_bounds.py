"""Facts about the size of what a coding agent receives."""

import json
from dataclasses import asdict

from relay_client.mcp.server import MAX_ELEMENTS, MAX_RESULT, MAX_TEXT, ToolResult, bounded


def test_small_result():
    """What fits is returned unchanged."""
    items = [{"ranks": [0, 1], "text": "3"}]
    assert ToolResult(items, truncated=False, note="") == bounded(items)


def test_many_items():
    """The first items are kept, and the note has the number of those left out."""
    found = bounded([{"rank": rank, "text": "x" * 1000} for rank in range(100)])
    assert 0 < len(found.items) < 100
    assert [*range(len(found.items))] == [item["rank"] for item in found.items]
    assert found.truncated
    assert f"{100 - len(found.items)} of 100 items were left out; request fewer ranks or frames" == found.note
    assert len(json.dumps(asdict(found))) < MAX_RESULT + 1000


def test_an_item_that_is_too_large():
    """It alone is left out: those after it are returned."""
    large = {"ranks": [2], "values": ["x" * 1000] * MAX_ELEMENTS}
    small = [{"ranks": [0]}, {"ranks": [1]}]
    found = bounded([small[0], large, small[1]])
    assert (small, "1 of 3 items were left out; request fewer ranks or frames") == (found.items, found.note)


def test_long_parts():
    """A long text and a long list within an item are shortened, which the note states."""
    found = bounded([{"text": "x" * (MAX_TEXT + 1), "ranks": list(range(MAX_ELEMENTS + 1))}])
    (item,) = found.items
    assert f"{'x' * MAX_TEXT}... [4,001 characters]" == item["text"]
    assert list(range(MAX_ELEMENTS)) == item["ranks"]
    assert (True, "long strings and lists were truncated") == (found.truncated, found.note)
