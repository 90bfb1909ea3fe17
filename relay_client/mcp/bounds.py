"""Limits on what a tool returns, because results fill the context of a coding agent; sans-IO."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_RESULT", "MAX_TEXT", "ToolResult", "bounded"]

MAX_RESULT = 24_000
"""Maximum number of characters in the items of one result, encoded as JSON: about 8,000 tokens."""
MAX_TEXT = 4_000
"""Maximum number of characters in one text in a result."""
MAX_ELEMENTS = 200
"""Maximum number of elements in one list or object within an item."""


@dataclass(frozen=True)
class ToolResult:
    """The result of every tool."""

    items: list[dict[str, Any]]
    """Ranks, groups of ranks, or paragraphs; outliers first."""
    truncated: bool
    """True if something was left out or shortened."""
    note: str
    """What was left out, and what to do; "" if nothing was left out."""


def bounded(items: Sequence[Mapping[str, Any]]) -> ToolResult:
    """Return a result that contains as many items as the limits permit."""
    shortened = False

    def shorten(value: Any) -> Any:
        nonlocal shortened
        if isinstance(value, str) and len(value) > MAX_TEXT:
            shortened = True
            return f"{value[:MAX_TEXT]}... [{len(value):,} characters]"
        if isinstance(value, Mapping):
            shortened |= len(value) > MAX_ELEMENTS
            return {name: shorten(one) for name, one in list(value.items())[:MAX_ELEMENTS]}
        if isinstance(value, (list, tuple)):
            shortened |= len(value) > MAX_ELEMENTS
            return [shorten(one) for one in value[:MAX_ELEMENTS]]
        return value

    kept: list[dict[str, Any]] = []
    size = 0
    for item in items:
        short = shorten(item)
        size += len(json.dumps(short, default=str))
        if size > MAX_RESULT:
            break
        kept.append(short)
    notes = []
    if omitted := len(items) - len(kept):
        notes.append(f"{omitted} of {len(items)} items were left out; request fewer ranks or frames")
    if shortened:
        notes.append("long strings and lists were truncated")
    return ToolResult(items=kept, truncated=bool(notes), note="; ".join(notes))
