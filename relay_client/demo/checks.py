"""Checks for the demo's steps; a failed check stops the demo."""

from __future__ import annotations

from relay_core.errors import RelayDebugError

__all__ = ["DemoFailed", "expect"]


class DemoFailed(RelayDebugError):
    """A program or the debugger did not behave as the demo expects."""


def expect(what: str, expected: object, actual: object) -> None:
    """Check that two values are equal.

    Args:
        what: Description of the values, which becomes the subject of the error sentence.
        expected: The value that the demo expects.
        actual: The value that was observed.

    Raises:
        DemoFailed: the values differ.
    """
    if expected != actual:
        raise DemoFailed(f"{what}: expected {expected!r}, found {actual!r}")
