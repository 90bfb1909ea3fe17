"""Facts about invalid messages of an editor to the port of all ranks: each is answered, and no rank stays held."""

from pathlib import Path

import pytest

from relay_client.dap import RequestFailed
from tests.support.editors.all_ranks import AllRanksEditor, all_ranks_editor
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.job

TRAIN = """\
import time

number = 0
while number < 1_000_000:
    number += 1
    time.sleep(0.01)
"""
COUNT = line_of(TRAIN, "number += 1")


def script_in(directory: Path) -> Path:
    script = directory / "train.py"
    script.write_text(TRAIN)
    return script


async def stopped(editor: AllRanksEditor, ranks: Ranks) -> int:
    """Attach, and wait until the only rank stops; return its thread."""
    await editor.dap.attach({str(ranks.script): [{"line": COUNT}]}, within=DEADLINE)
    return (await editor.stops(1))["rank 0"]["threadId"]  # type: ignore[no-any-return]


async def test_second_attach_and_breakpoints_without_a_file(relay: LocalRelay, tmp_path: Path) -> None:
    """A second `attach`, and breakpoints in a source without a path, are refused; the session continues."""
    async with Ranks(relay, script_in(tmp_path), 1) as ranks, all_ranks_editor(relay) as editor:
        thread = await stopped(editor, ranks)
        with pytest.raises(RequestFailed, match="already attached"):
            await editor.dap.request("attach", {"type": "debugpy"}, within=DEADLINE)
        for source in ({}, {"name": "train.py"}, {"path": 5}, None):
            with pytest.raises(RequestFailed, match="no path"):
                arguments = {"source": source, "breakpoints": [{"line": COUNT}]}
                await editor.dap.request("setBreakpoints", arguments, within=DEADLINE)
        await editor.move("next", thread)
        assert 1 == len(await editor.stops(1))


@pytest.mark.parametrize("body", [b"{x}", b"[1]", b'{"seq":1}', b"\xff", b""], ids=repr)
async def test_body_that_is_not_a_message(relay: LocalRelay, tmp_path: Path, body: bytes) -> None:
    """The session ends with a sentence, and the rank continues: another editor can stop it."""
    async with Ranks(relay, script_in(tmp_path), 1) as ranks:
        async with all_ranks_editor(relay) as editor:
            await stopped(editor, ranks)
            await editor.dap._stream.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            assert "does not use the Debug Adapter Protocol" in await editor.line("Debug Adapter Protocol")
            await editor.dap.wait_for_event("terminated", within=DEADLINE)
        async with all_ranks_editor(relay) as other:
            await stopped(other, ranks)
