"""The page of `relay-client --ui`."""

from __future__ import annotations

import re

from tests.pictures.colours import empty_tab, write_both
from tests.pictures.scripts import one_stopped_one_crashed
from tests.pictures.stage import PORTS, Stage

__all__ = ["page"]

SCALE = 1.4
SIZE = {"width": 1200, "height": 800}


async def page(stage: Stage) -> None:
    """Four ranks on two nodes: one is stopped by an editor, and one is held at an exception."""
    async with (
        one_stopped_one_crashed(stage, stage.client("--ports", PORTS, "--ui")) as client,
        empty_tab(SCALE) as tab,
    ):
        if "http://" not in client.stderr:
            await client.line("http://")
        link = re.search(r"http://\S+", client.stderr)
        assert link is not None
        await tab.set_viewport_size(SIZE)
        await tab.goto(link[0])
        for name in (r"rank 0, ", r"rank 1, stopped", r"rank 2, crashed", r"rank 3, "):
            await tab.get_by_role("button", name=re.compile(name)).first.wait_for()
        await tab.get_by_role("button", name=re.compile("rank 1, stopped")).first.click()
        await tab.get_by_role("heading", name=re.compile("rank 1 of 4")).wait_for()
        await tab.get_by_role("button", name="Stacks").click()
        await tab.get_by_text("read_heights").first.wait_for()
        await write_both("page", tab, full_page=True)
