"""Shows the difference between two versions of a file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from relay_core.value_parsers import escape_controls

__all__ = ["unified_diff"]

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_NO_COLOUR = "\x1b[0m"


def unified_diff(before: str, after: str, name: str, *, colour: bool) -> Iterator[str]:
    """Yield the lines of a unified diff without line endings; no lines if the texts are equal.

    Args:
        before: The current text; "" if the file does not exist.
        after: The new text.
        name: Name of the file.
        colour: Whether to add the colours of a terminal.
    """
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (now)" if before else "(no file)", name, lineterm=""
    )
    for line in lines:
        shown = escape_controls(line.expandtabs(4))
        mark = _COLOURS.get(line[0]) if colour else None
        yield f"{mark}{shown}{_NO_COLOUR}" if mark else shown
