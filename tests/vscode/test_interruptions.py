"""Facts about a debug session in a real VS Code that stands at a breakpoint while the laptop sleeps."""

import signal
from pathlib import Path

import pytest

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.sessions import stopped_at_a_breakpoint
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]

TIMERS = {"RELAY_PING_AFTER": "0.5", "RELAY_DEAD_AFTER": "1.5"}
"""Seconds; by default the agent waits for half a minute for a laptop that is silent."""


async def test_the_laptop_sleeps(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """After a sleep in which the agent has given up the connection, and the network is there later, steps are taken."""
    async with (
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        stopped_at_a_breakpoint(editor, relay, tmp_path, through=chaos, variables=TIMERS) as (window, job, client, _),
    ):
        await window.until_shown(window.variables, "number = 0")
        client.process.send_signal(signal.SIGSTOP)
        chaos.down.blackhole = chaos.up.blackhole = True
        await job.line("lost the transport to")
        chaos.accepting = chaos.down.blackhole = chaos.up.blackhole = False
        chaos.cut()
        client.process.send_signal(signal.SIGCONT)
        await window.until_shown(window.console, "the connection to rank 0 on ")
        await window.press("F10")
        chaos.accepting = True
        await window.until_shown(window.variables, "square = 0")
        await window.until_shown(window.console, " was restored after ")
        await window.press("F10")
        await window.until_shown(window.variables, "double = 0")
