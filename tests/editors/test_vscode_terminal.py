"""Facts about the table that relay-client keeps on VS Code's terminal."""

import io
import re

import pytest
from rich.console import Console

from relay_client.ui.live_table import ScreenTable
from relay_client.ui.target_table import COLUMNS, Row
from tests.support.machine.vscode_terminal import MISSING, VSCodeTerminal, vscode_terminal

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

HEIGHT = 30
ROWS = [
    Row(
        tuple(
            {"node": "node-1", "rank": str(rank), "script": "train.py", "state": "running"}.get(c, "") for c in COLUMNS
        )
    )
    for rank in range(4)
]


class Output(io.StringIO):
    """Writes to a terminal."""

    def __init__(self, terminal: VSCodeTerminal) -> None:
        super().__init__()
        self._terminal = terminal
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        self._terminal.write(text)
        return len(text)


async def test_a_terminal_that_is_resized(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the terminal changes its width, the table is there once, and every line above it is whole."""
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    async with vscode_terminal(120, HEIGHT) as terminal:
        output = Output(terminal)
        console = Console(file=output, force_terminal=True, width=120, height=HEIGHT)
        table = ScreenTable(console)
        events = []
        with table.shown():
            for width in (120, 55, 100, 40, 110, 30, 70, 25, 80, 60, 50, 120):
                terminal.resize(width, HEIGHT)
                console.size = (width, HEIGHT)
                events.append(
                    f"relay-client: the terminal has {width} columns, "
                    + "which is shown in a long line, " * 4
                    + "and so on"
                )
                table.write_above(events[-1] + "\n")
                table.update(ROWS)
            heading, *shown = (await terminal.lines())[len(events) :]
        assert [event.rstrip() for event in events] == [line.rstrip() for line in (await terminal.lines())]
    assert not re.search(r" (?:\x1b\[[\d;]*m)*\n", output.text), "trailing spaces would wrap"
    assert heading.startswith("node    rank")
    assert [["node-1", str(rank), "train.py", "running"] for rank in range(4)] == [row.split() for row in shown]
