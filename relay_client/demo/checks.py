"""How the demo insists: every step says what it expects, and one that differs ends the demo."""

from __future__ import annotations

from relay_core.errors import RelayDebugError

__all__ = ["DemoFailed", "expect"]


class DemoFailed(RelayDebugError):
    """Something did not happen as the demo says it does."""


def expect(what: str, expected: object, actual: object) -> None:
    """Compare.

    Raises:
        DemoFailed: they differ.
    """
    if expected != actual:
        raise DemoFailed(f"{what} should be {expected!r} and is {actual!r}")
