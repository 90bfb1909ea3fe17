"""Facts about the extension's view of snapshots, run by Node."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.vscode.modules import needs_esbuild, run_extension_modules

pytestmark = [pytest.mark.editors, needs_esbuild]

ROWS = """
import { readFileSync } from 'node:fs';
import { Snapshots } from './src/snapshots';
const snapshots = new Snapshots();
const { onDidSendMessage } = snapshots.createDebugAdapterTracker({ name: 'rank 7 on vm' });
for (const body of JSON.parse(readFileSync(0, 'utf8'))) onDidSendMessage({ type: 'event', event: 'output', body });
const rowsOf = (row) => snapshots.getChildren(row).map((each) => {
  const { label, description, command, collapsibleState } = snapshots.getTreeItem(each);
  return [label, description, Boolean(command), collapsibleState ?? -1, rowsOf(each)];
});
console.log(JSON.stringify(rowsOf()));
snapshots.clear();
console.log(JSON.stringify(rowsOf()));
"""
FRAMES = [
    ["step", "/w/train.py", 41, [["loss", "0.5"]]],
    ["main", "/w/run.py", 7, []],
]
HIDDEN, COLLAPSED, EXPANDED = 0, 1, 2


async def rows(to: Path, *bodies: object) -> list[Any]:
    """Let sessions show outputs; return the rows of the view."""
    found, cleared = await run_extension_modules(ROWS, to, given=bodies)
    assert [] == cleared
    return found  # type: ignore[no-any-return]


async def test_rows_of_a_snapshot(tmp_path: Path) -> None:
    """A snapshot has its frames, and these their variables; a session of all ranks names the rank, or else its name."""
    line = "snapshot 3 at train.py:41 in step, 12:03:07: loss 0.5\n"
    data = {"data": {"snapshot": FRAMES}}
    last, first = await rows(tmp_path, {**data, "output": line}, {**data, "output": f"rank 2 | {line}"})
    place = "train.py:41 12:03:07: loss 0.5"
    assert ["rank 2", place, True, COLLAPSED] == last[:4]
    assert ["rank 7 on vm", place] == first[:2]
    value = ["loss", "0.5", False, HIDDEN, []]
    step = ["step", "train.py:41", True, EXPANDED, [value]]
    assert [step, ["main", "run.py:7", True, COLLAPSED, []]] == last[4]


async def test_other_output(tmp_path: Path) -> None:
    """Only output with a snapshot has a row; one of another form has no frames, and its texts are not interpreted."""
    hostile = [["$(trash)", "\x1b[2J"]]
    odd: list[object] = [None, {}, "x", [], [hostile], [["f", "/w/x.py", 1, hostile]]]
    found = await rows(tmp_path, {"output": "x"}, {"data": None}, *({"data": {"snapshot": each}} for each in odd))
    assert 3 == len(found)
    variable = found[0][4][0][4][0]
    assert ["$ (trash)", "[2J"] == variable[:2]


async def test_oldest_snapshots(tmp_path: Path) -> None:
    """The view keeps the last 100 snapshots, each with at most 60 frames."""
    bodies = [{"output": f"snapshot {number} at x", "data": {"snapshot": FRAMES * 40}} for number in range(120)]
    found = await rows(tmp_path, *bodies)
    assert 100 == len(found)
    assert 60 == len(found[0][4])
