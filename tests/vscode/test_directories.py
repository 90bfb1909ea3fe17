"""Facts about directories in a real VS Code: the code is in one on the laptop and in another one on the node."""

from pathlib import Path

import pytest

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.sessions import ready_for_f5, stopped_at_a_breakpoint
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_a_wrong_remote_root(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """If remoteRoot is wrong, a notification and the Debug Console show the mapping to write."""
    wrong = [{"localRoot": "${workspaceFolder}", "remoteRoot": "/nowhere"}]
    async with ready_for_f5(editor, relay, tmp_path, pathMappings=wrong) as (window, *_):
        await window.press("F5")
        await window.until_shown(window.notifications, "relay-client: breakpoints in train.py are not set: ")
        shown = await window.until_shown(window.console, '"pathMappings": [')
        assert f" does not find /nowhere/train.py. The job was started in {tmp_path / 'job'}. hint: " in " ".join(shown)
        assert '"remoteRoot": "."}]' in " ".join(shown)


async def test_no_path_mappings(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Without pathMappings the job stops at the breakpoint, and the Debug Console shows the mapping that was set."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path, pathMappings=None) as (window, *_):
        await window.until_shown(window.console, "the attach configuration has no pathMappings: ")
