"""Facts about child processes of ranks in the session of all ranks: real processes, each with its debugpy."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.all_ranks import all_ranks_editor
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.job

TRAIN = """\
import multiprocessing
import os
import pathlib
import time


def load(number):
    loaded = number * 10
    return loaded


if __name__ == "__main__":
    rank = int(os.environ["RELAY_RANK"])
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.map(load, [rank + 1])
        pool.close()
        pool.join()
    pathlib.Path(f"found-{rank}").write_text(str(found))
"""
IN_CHILD = line_of(TRAIN, "loaded = number")


@pytest.mark.parametrize(
    ("options", "arguments"), [((), {"subProcess": True}), (("--follow-children",), {})], ids=["editor", "job"]
)
async def test_children_stop_and_step(
    relay: LocalRelay, tmp_path: Path, options: tuple[str, ...], arguments: dict[str, Any]
) -> None:
    """Workers of two ranks stop, step together and end, whether the editor or the job wants to follow them."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    async with Ranks(relay, script, 2, *options) as ranks, all_ranks_editor(relay) as editor:
        await editor.dap.attach({str(ranks.script): [{"line": IN_CHILD}]}, within=DEADLINE, **arguments)
        await editor.until_listed(2)
        (tmp_path / "go").touch()
        stops = await editor.stops(2)
        assert ["rank 0 / process", "rank 1 / process"] == sorted(name.rpartition(" ")[0] for name in stops)
        threads = [stops[name]["threadId"] for name in sorted(stops)]
        assert ["1", "2"] == [await editor.evaluate("number", thread) for thread in threads]
        await editor.move("next", threads[0])
        assert stops.keys() == (await editor.stops(2)).keys()
        assert ["10", "20"] == [await editor.evaluate("loaded", thread) for thread in threads]
        await editor.move("continue", threads[0])
        ended = await editor.dap.wait_for_event("exited", within=DEADLINE)
        assert 0 == ended["body"]["exitCode"]
        assert ["[10]", "[20]"] == [(tmp_path / f"found-{rank}").read_text() for rank in range(2)]
