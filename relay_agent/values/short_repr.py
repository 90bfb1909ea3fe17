"""Values as text of limited length, with tensors, arrays and tables described by type and shape."""

from __future__ import annotations

import reprlib
from typing import Any

from relay_agent.values.presentation import find_presenter

__all__ = ["ShortRepr", "short_repr"]

MAX_TEXT = 2000
"""Maximum number of characters in a value that a client has requested."""
MAX_ITEMS = 100
FEW_ELEMENTS = 16
"""Maximum number of elements in an array whose contents are shown if a client has requested the value."""


class ShortRepr(reprlib.Repr):
    """The standard library's short repr, with tensors, arrays and tables described by type and shape.

    Args:
        max_text: Maximum number of characters for each object and string.
        shows_few: Whether arrays of a few elements are shown by their contents, which may wait for a device.
    """

    def __init__(self, max_text: int, *, shows_few: bool = False) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = max_text
        self._shows_few = shows_few

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the text of an object that is not of a built-in type."""
        presenter = find_presenter(type(x))
        if presenter is None or (self._shows_few and _has_few_elements(x)):
            return super().repr_instance(x, level)
        return presenter.present(x)


def _has_few_elements(value: Any) -> bool:
    size = 1
    for length in getattr(value, "shape", None) or ():
        size *= length
    return hasattr(value, "dtype") and size <= FEW_ELEMENTS


def short_repr(value: object) -> str:
    """Return the text of a value that a client has requested."""
    text = _asked.repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


_asked = ShortRepr(MAX_TEXT, shows_few=True)
_asked.maxlist = _asked.maxtuple = _asked.maxdict = _asked.maxset = _asked.maxfrozenset = _asked.maxdeque = MAX_ITEMS
