"""VS Code with the view of all ranks, while one rank is debugged."""

from __future__ import annotations

from tests.pictures.editor import SCRIPT, arrange, window_of, write_screenshots
from tests.pictures.scripts import TRAINING
from tests.pictures.stage import PORTS, Stage
from tests.support.jobs.many_ranks import line_of

__all__ = ["ranks_view"]

WIDTH, HEIGHT = 1000, 680
LINE = line_of(TRAINING, "gradient = points.T")


async def ranks_view(stage: Stage) -> None:
    """Rank 0 is stopped at a breakpoint; the view shows that, and the other ranks on two nodes."""
    async with (
        stage.job(TRAINING, "--debug-ranks", "none", nodes=2),
        stage.client("--ports", PORTS),
        window_of(stage, WIDTH, HEIGHT) as window,
    ):
        await window.page.locator(".statusbar-item", has_text="4 ranks").wait_for()
        await window.command("relayDebug.ranks.focus")
        await window.breakpoint(LINE, SCRIPT)
        await window.command("relayDebug.attach", {"rank": 0})
        await window.until_stopped()
        await window.command("workbench.action.closePanel")
        await arrange(window, closed=("Watch", "Breakpoints"), first_line=LINE - 20)
        await window.until_shown(window.variables, "loss = ")
        ranks = window.page.locator('.pane:has([aria-label="Ranks Section"]) .monaco-list-row')
        await window.until_shown(ranks, f"{SCRIPT}:{LINE} · attached here")
        await write_screenshots("ranks-view", window)
