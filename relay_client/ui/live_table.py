"""The live table below the log lines on a terminal: the current targets, their states and attachments."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from relay_client.ui.target_table import by_node, rich_table, rows
from relay_core.agent_api.announcement import AgentInfo
from relay_core.net.tasks import TaskSet

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

__all__ = ["live_table"]

REFRESH_INTERVAL = 1.0
"""Seconds between updates; the table is redrawn only if it has changed."""


@contextlib.asynccontextmanager
async def live_table(agents: Iterable[AgentInfo]) -> AsyncIterator[None]:
    """Show a table on stderr, below the log lines, during a block; does nothing if stderr is not a terminal.

    Args:
        agents: The current agents; iterated at each update.
    """
    console = _terminal()
    if console is None:
        yield
        return
    from rich.console import Group  # noqa: PLC0415 - on a terminal only
    from rich.live import Live  # noqa: PLC0415 - as above

    live = Live(Group(), console=console, auto_refresh=False, transient=True, redirect_stderr=False)
    with live, _log_above(console):
        async with TaskSet() as tasks:
            tasks.spawn(_update(live, agents), name="live table")
            yield


async def _update(live: Live, agents: Iterable[AgentInfo]) -> None:
    shown: list[tuple[str, ...]] = []
    while True:
        lines = rows(by_node(agents), time.time())
        if lines != shown:
            live.update(rich_table(lines), refresh=True)
            shown = lines
        await asyncio.sleep(REFRESH_INTERVAL)


def _terminal() -> Console | None:
    """Return a rich console for stderr, or None if stderr is not a terminal with cursor movement."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 - on a terminal only
    except ImportError:  # rich is optional
        return None
    return Console(stderr=True)


class _AboveTable:
    """A text stream that prints above the table, without colours and line breaks added by rich."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        self._console.out(text, end="", highlight=False)
        return len(text)

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def _log_above(console: Console) -> Iterator[None]:
    """Write the program's log lines above the table during a block."""
    handlers = [h for h in logging.getLogger("relay_client").handlers if isinstance(h, logging.StreamHandler)]
    for handler in handlers:
        handler.setStream(_AboveTable(console))
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.stderr)
