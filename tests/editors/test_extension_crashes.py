"""Facts about the extension's notification of crashes, and about ranks whose relay-client is gone, run by Node."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.vscode.modules import needs_esbuild, run_extension_modules

pytestmark = [pytest.mark.editors, needs_esbuild]

READ = """
import { readFileSync } from 'node:fs';
import { calls } from 'vscode';
const given = JSON.parse(readFileSync(0, 'utf8'));
const print = (value) => console.log(JSON.stringify(value));
"""
CRASHES = f"""
import {{ Crashes }} from './src/crashes';
import {{ Documents }} from './src/sinks';
{READ}
const ranks = given.map((target, at) => ({{
  client: {{ id: 'c1', hc: 'myhc' }}, node: {{ agent: 'a1', host: 'vm' }},
  target: {{ rank: at, port: 5678 + at, local_ports: [], ...target }},
}}));
const crashes = new Crashes({{ ranks, statuses: [] }}, new Documents('texts'));
for (const times of [1, 2]) for (const {{ node: {{ agent }}, target: {{ port, rank, text }} }} of ranks) {{
  const event = {{ event: 'state', state: 'crashed', agent, port, time: times }};
  if (text) crashes.add({{ ...event, text: `rank ${{rank}} on vm ${{text}}` }});
}}
const isShown = ([name]) => /show.*Message|startDebugging/.test(name);
process.on('exit', () => calls.filter(isShown).forEach(([, call]) => print(call)));
"""
ROWS = f"""
import {{ attach }} from './src/configurations';
import {{ createRanksView }} from './src/tree';
{READ}
const client = {{ id: 'c1', hc: 'myhc', namespace: 'relay', started: 1 }};
const stopped = {{ place: 'train.py:41', text: 'stopped at train.py:41' }};
const target = {{ rank: 0, port: 5678, local_ports: [], ...stopped, ...given }};
const node = {{ agent: 'a1', host: 'vm', link: 'connected', targets: [target], ended: [] }};
const {{ rows }} = createRanksView({{ statuses: [{{ client, nodes: [node], ports: [] }}], onDidChange: () => {{}} }});
const {{ description, contextValue, iconPath }} = rows.getTreeItem(rows.getChildren(rows.getChildren()[0])[0]);
print([description, contextValue, iconPath.values[0]]);
attach({{ client, node, target }}).then(() => print(calls.some(([name]) => name === 'debug.startDebugging')));
"""


async def notified(to: Path, *targets: dict[str, Any]) -> list[list[Any]]:
    """Let ranks crash in one wave, which two relay-clients report; return the notifications and sessions."""
    return await run_extension_modules(CRASHES, to, given=targets)


async def test_a_wave_of_crashes(tmp_path: Path) -> None:
    """One notification names the rank that crashed first, not one that had lost its connection, and attaches to it."""
    lost = {"text": "crashed: RuntimeError: Connection closed by peer", "is_consequence": True, "since": 10}
    first = {"text": "crashed: ValueError: no", "since": 11}
    message, [_folder, configuration] = await notified(tmp_path, lost, first, {**first, "since": 12}, {}, lost)
    text = "rank 1 on vm crashed: ValueError: no; 3 other ranks crashed as well (4 of 5)."
    assert [text, "Attach", "Show All"] == message
    assert "rank 1 on vm" == configuration["name"]


async def test_one_crash(tmp_path: Path) -> None:
    """The notification of a single crash is the line about it."""
    message, _session = await notified(tmp_path, {}, {"text": "crashed: ValueError: no", "since": 11})
    assert ["rank 1 on vm crashed: ValueError: no", "Attach"] == message


@pytest.mark.parametrize(
    ("target", "row", "can_attach"),
    [
        ({"kind": "stopped", "is_away": True}, ["not connected · train.py:41", "rank.away", "debug-disconnect"], True),
        ({"kind": "stopped"}, ["train.py:41 · me@laptop", "rank", "debug-pause"], False),
        (
            {"kind": "running", "text": "running", "is_away": True},
            ["running · me@laptop (not connected)", "rank", "circle-outline"],
            True,
        ),
    ],
)
async def test_a_rank_without_a_connected_holder(
    tmp_path: Path, target: dict[str, Any], row: list[str], can_attach: bool
) -> None:
    """A stopped rank whose relay-client is gone has an icon and a button of its own, and its user may attach again."""
    given = {"holder": "me@laptop", **target}
    assert [row, can_attach] == await run_extension_modules(ROWS, tmp_path, given=given)
