"""The live table below the log lines on a terminal: the current targets, their states and attachments.

Between two updates, the cursor is on the first line of the table, not below it. A terminal that is resized keeps the
cursor on its line even if it wraps other lines, so erasing from the cursor down always removes the whole table. Moving
up from below the table by its number of lines, as `rich.live` does, leaves copies of the table when a line wraps.

The terminal of VS Code, xterm.js, is the exception: if lines below the cursor wrap, it moves the cursor down by as many
lines. There, the cursor stays below the table, and moves up by the number of lines that the table takes when wrapped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from relay_client.ui.background import stderr_to
from relay_client.ui.target_table import Row, most_important, rich_table, summary
from relay_core.net.tasks import TaskSet, first_completed

if TYPE_CHECKING:
    from rich.console import Console


# Access to the terminal through rich; without rich, the client prints plain text.


def rich_console() -> Console | None:
    """Return a rich console for stderr; None if rich is not installed.

    With `NO_COLOR` (https://no-color.org), the console writes neither colours nor bold headings.
    """
    try:
        from rich.console import Console  # noqa: PLC0415 - on a terminal only
    except ImportError:  # rich is optional
        return None
    return Console(stderr=True, color_system=None if os.environ.get("NO_COLOR") else "auto")


REFRESH_INTERVAL = 1.0
"""Seconds between updates; the table is redrawn only if it or the size of the terminal has changed."""

_ERASE = "\r \x1b[J\r"
"""Erases from the cursor's line to the end of the screen. The space keeps the cursor away from the corner: if tmux
erases a screen from its corner, it moves a copy to the lines that have scrolled out, here once per second."""
_TRAILING_SPACES = re.compile(r" +((?:\x1b\[[\d;]*m)*)$")
"""Trailing spaces are removed, because a shorter line wraps less often. If a tmux pane becomes narrower and wraps more
lines than there are above the table, the top of the table scrolls out of the pane, and nothing can erase it there."""
_UP = "\x1b[{}A\r"
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
"""Written before and after a table that has the cursor on its first line: each of its lines then takes one line on the
screen, even if the terminal has just become narrower."""
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Written before and after an update. A terminal that supports this shows the whole update at once; other terminals
ignore it."""
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@contextlib.asynccontextmanager
async def live_table(rows: Callable[[], list[Row]]) -> AsyncIterator[None]:
    """Show a table on stderr, below the log lines, during a block.

    Do nothing if stderr is not a terminal, or if only warnings are logged.

    Args:
        rows: Returns the current rows; called at each update.
    """
    console = _terminal()
    if console is None:
        yield
        return
    table = ScreenTable(console)
    above = _AboveTable(table)
    stdout = above if sys.stdout.isatty() else sys.stdout
    with table.shown(), stderr_to(above), contextlib.redirect_stdout(stdout):
        async with TaskSet() as tasks:
            tasks.spawn(_update(table, rows), name="live table")
            yield


async def _update(table: ScreenTable, rows: Callable[[], list[Row]]) -> None:
    with _resizes() as resized:
        while True:
            table.update(rows())
            await first_completed(resized.wait(), timeout=REFRESH_INTERVAL)
            resized.clear()


@contextlib.contextmanager
def _resizes() -> Iterator[asyncio.Event]:
    """Yield an event that is set when the terminal is resized, if the platform has a signal for this."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    if not hasattr(signal, "SIGWINCH"):
        yield event
        return
    loop.add_signal_handler(signal.SIGWINCH, event.set)
    try:
        yield event
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _terminal() -> Console | None:
    """Return a rich console for stderr, or None if stderr is not a terminal with cursor movement."""
    is_quiet = not logging.getLogger("relay_client").isEnabledFor(logging.INFO)
    if is_quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    return rich_console()


class ScreenTable:
    """The table on the screen. The cursor is in the first column, on the table's first line or below its last one.

    Args:
        console: The console of the terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._file = console.file  # `sys.stderr` itself, which is another stream while the table is shown
        self._rows: list[Row] = []
        self._size = (0, 0)
        self._cursor_is_below = os.environ.get("TERM_PROGRAM") == "vscode"
        self._widths: list[int] = []
        """Widths of the lines on the screen, in cells."""

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Remove the table at the end of a block."""
        self._write(_HIDE_CURSOR)
        try:
            yield
        finally:
            self._write(self._erasure() + _SHOW_CURSOR)

    def update(self, lines: list[Row]) -> None:
        """Show these rows."""
        if (lines, tuple(self._console.size)) != (self._rows, self._size):
            self._rows = lines
            self.write_above("")

    def write_above(self, text: str) -> None:
        """Write lines above the table without changing them."""
        self._write(_BEGIN + self._erasure() + text + self._drawing() + _END)

    def _erasure(self) -> str:
        """Return the text that erases the table, and moves the cursor to where its first line was."""
        if not (self._cursor_is_below and self._widths):
            return _ERASE
        width = self._console.width
        return _UP.format(sum(max(1, math.ceil(each / width)) for each in self._widths)) + _ERASE

    def _drawing(self) -> str:
        """Return the text that draws the table at the cursor, and moves the cursor to its place between updates."""
        from rich.text import Text  # noqa: PLC0415 - on a terminal only

        self._size = width, height = self._console.size
        fits = len(self._rows) + 2 <= height  # the heading, and a line for the next log line or the cursor
        shown, hidden = (self._rows, []) if fits else most_important(self._rows, max(0, height - 3))
        with self._console.capture() as captured:
            self._console.print(rich_table(shown, width))
        lines = [_TRAILING_SPACES.sub(r"\1", line) for line in captured.get().splitlines()]
        if hidden:
            lines.append(summary(hidden)[:width])
        self._widths = [Text.from_ansi(line).cell_len for line in lines]
        if self._cursor_is_below:
            return "".join(f"{line}\n" for line in lines)
        back = _UP.format(len(lines) - 1) if len(lines) > 1 else "\r"
        return _WRAP_OFF + "\n".join(lines) + _WRAP_ON + back

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


class _AboveTable:
    """A text stream that prints above the table."""

    def __init__(self, table: ScreenTable) -> None:
        self._table = table
        self._line = ""
        """The beginning of a line whose end has not been written."""

    def write(self, text: str) -> int:
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._table.write_above(lines + newline)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True
