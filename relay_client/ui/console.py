"""Access to the terminal through rich; without rich, the client prints plain text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["rich_console"]


def rich_console(*, stderr: bool = False) -> Console | None:
    """Return a rich console for stdout or stderr; None if rich is not installed.

    With `NO_COLOR` (https://no-color.org), the console writes neither colours nor bold headings.
    """
    try:
        from rich.console import Console  # noqa: PLC0415 - on a terminal only
    except ImportError:  # rich is optional
        return None
    return Console(stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")
