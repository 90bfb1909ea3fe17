"""Facts about one debug session for all ranks: a real relay, agent and debugpy in each of several processes."""

from pathlib import Path

import pytest

from tests.support.many_ranks import AllRanksEditor, Ranks, all_ranks_editor, line_of
from tests.support.relay import LocalRelay

pytestmark = [pytest.mark.job, pytest.mark.timeout(300)]

TRAIN = """\
import os
import time

rank = int(os.environ["RELAY_RANK"])
number = 0
while number < 1_000_000:
    number += 1
    if rank == 2:
        odd = number
    else:
        even = number
    time.sleep(0.01)
"""
COUNT = line_of(TRAIN, "number += 1")
SPLIT = line_of(TRAIN, "if rank == 2")


async def attached(editor: AllRanksEditor, ranks: Ranks, **breakpoint_: object) -> list[dict[str, object]]:
    """Attach with a breakpoint where `number` is counted."""
    found = await editor.dap.attach({str(ranks.script): [{"line": COUNT, **breakpoint_}]}, within=120)
    return found[str(ranks.script)]


def script_in(directory: Path) -> Path:
    script = directory / "train.py"
    script.write_text(TRAIN)
    return script


async def test_all_ranks_stop_step_and_split(relay: LocalRelay, tmp_path: Path) -> None:
    """Four ranks stop at one breakpoint, one `next` moves all, and a condition on the rank splits them."""
    async with Ranks(relay, script_in(tmp_path), 4) as ranks, all_ranks_editor(relay) as editor:
        await attached(editor, ranks)
        stops = await editor.stops(4)
        assert ["rank 0", "rank 1", "rank 2", "rank 3"] == sorted(stops)
        assert 1 == sum("preserveFocusHint" not in body for body in stops.values())
        assert {False} == {body["allThreadsStopped"] for body in stops.values()}
        await editor.line(f"ranks 0-3 at train.py:{COUNT}")
        first = stops["rank 1"]["threadId"]
        await editor.move("next", first)
        assert 4 == len(await editor.stops(4))
        await editor.line(f"ranks 0-3 at train.py:{SPLIT}")
        await editor.move("next", first)
        await editor.stops(4)
        await editor.line(f"ranks 0-1, 3 at train.py:{SPLIT + 3}; rank 2 at train.py:{SPLIT + 1}")
        values = {name: await editor.evaluate("rank", body["threadId"]) for name, body in stops.items()}
        assert {"rank 0": "0", "rank 1": "1", "rank 2": "2", "rank 3": "3"} == values
