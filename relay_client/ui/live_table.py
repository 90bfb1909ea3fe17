"""The table under the event lines of a terminal: what can be debugged now, in which state, and who holds it."""

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
"""Seconds between two looks; nothing is drawn where nothing has changed."""


@contextlib.asynccontextmanager
async def live_table(agents: Iterable[AgentInfo]) -> AsyncIterator[None]:
    """Keep a table on stderr, below the event lines, during a block; nothing where stderr is no terminal.

    Args:
        agents: Looked at again and again.
    """
    console = _terminal()
    if console is None:
        yield
        return
    from rich.console import Group  # noqa: PLC0415 - on a terminal only
    from rich.live import Live  # noqa: PLC0415 - as above

    live = Live(Group(), console=console, auto_refresh=False, transient=True, redirect_stderr=False)
    with live, _lines_above(console):
        async with TaskSet() as tasks:
            tasks.spawn(_keep(live, agents), name="live table")
            yield


async def _keep(live: Live, agents: Iterable[AgentInfo]) -> None:
    shown: list[tuple[str, ...]] = []
    while True:
        lines = rows(by_node(agents), time.time())
        if lines != shown:
            live.update(rich_table(lines), refresh=True)
            shown = lines
        await asyncio.sleep(REFRESH_INTERVAL)


def _terminal() -> Console | None:
    """Return rich's view of stderr if it is a terminal on which the cursor can be moved."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 - on a terminal only
    except ImportError:  # an extra of this package
        return None
    return Console(stderr=True)


class _Above:
    """Prints text above the table, as it is: colours and line breaks of rich's own would spoil it."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        self._console.out(text, end="", highlight=False)
        return len(text)

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def _lines_above(console: Console) -> Iterator[None]:
    """Send the program's event lines through `console` during a block."""
    handlers = [h for h in logging.getLogger("relay_client").handlers if isinstance(h, logging.StreamHandler)]
    for handler in handlers:
        handler.setStream(_Above(console))
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.stderr)
