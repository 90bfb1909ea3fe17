"""Facts about what is printed while the live table is shown."""

import asyncio
import io
import logging
import sys

import pytest

from relay_client.ranks.record import Node, Target
from relay_client.ui.live_table import live_table
from relay_client.ui.target_table import rows


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


async def test_text_on_stderr_is_a_line_above_the_table(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a program prints on stderr, such as the link to the page, replaces no part of the table, as log lines do."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    caplog.set_level(logging.INFO, "relay_client")
    async with live_table(lambda: rows([Node("a", "node-0", targets=(Target(5678, 0),))], 0.0)):
        while "node-0" not in terminal.getvalue():
            await asyncio.sleep(0)
        print("http://127.0.0.1/#token", file=sys.stderr, flush=True)
        before, _, after = terminal.getvalue().partition("http://127.0.0.1/#token\n")
    assert before.endswith("\r \x1b[J\r")
    assert "node-0" in after
    assert sys.stderr is terminal
