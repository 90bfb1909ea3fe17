"""Facts about exceptions in `stopped` events."""

import pytest

from relay_core.dap.messages import exception_of, stops_only_at_uncaught, with_short_description

STEP = {"reason": "step", "threadId": 1}
NOTED = {
    "reason": "exception",
    "threadId": 1,
    "text": "ValueError       (note: full exception trace is shown but execution is paused at: <module>)",
    "description": "no: 1",
}
"""As debugpy reports an uncaught exception."""


def test_the_exception_of_a_stop() -> None:
    """It has the type without debugpy's note, and the message; other stops have none."""
    assert ("ValueError", "no: 1") == exception_of(NOTED)
    assert "ValueError: no: 1" == str(exception_of(NOTED))
    assert "KeyError" == str(exception_of({"reason": "exception", "text": "KeyError"}))
    assert "exception" == str(exception_of({"reason": "exception", "text": 7, "description": None}))
    assert exception_of(STEP) is None


def test_what_the_editor_receives() -> None:
    """The description is the type alone, the text has all, and applying it again changes nothing."""
    changed = with_short_description(NOTED)
    assert {**NOTED, "text": "ValueError: no: 1", "description": "ValueError"} == changed
    assert exception_of(NOTED) == exception_of(changed)
    assert changed == with_short_description(changed)
    assert with_short_description(STEP) is STEP


@pytest.mark.parametrize(
    ("arguments", "is_only"),
    [
        ({"filters": ["uncaught"]}, True),
        ({"filters": [], "filterOptions": [{"filterId": "uncaught"}]}, True),
        ({"filters": ["uncaught", "raised"]}, False),
        ({"filters": ["uncaught"], "filterOptions": [{"filterId": "userUnhandled"}]}, False),
        ({"filters": []}, False),
        ({"filters": "uncaught", "filterOptions": 7}, False),
        ({}, False),
    ],
)
def test_filters(arguments: dict[str, object], *, is_only: bool) -> None:
    """Only with no other filter than `uncaught` does each stop at an exception mean that no code catches it."""
    assert is_only == stops_only_at_uncaught(arguments)
