"""Facts about directories in a real VS Code: the code is in one on the laptop and in another one on the node."""

from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.relay import LocalRelay
from tests.support.run_job import running_client
from tests.support.vscode.editor import Editor
from tests.support.vscode.jobs import waiting_job
from tests.support.vscode.workspace import BREAKPOINT, attach

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_a_wrong_remote_root(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """If remoteRoot is wrong, a notification and the Debug Console show the mapping to write."""
    port = free_port()
    wrong = [{"localRoot": "${workspaceFolder}", "remoteRoot": "/nowhere"}]
    async with (
        editor.window(attach("rank 0", port, pathMappings=wrong)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_shown(window.notifications, " are not set: the file is not found")
        shown = await window.until_shown(window.console, '"pathMappings": [')
        assert f'"remoteRoot": "{tmp_path / "job"}"' in " ".join(shown)


async def test_no_path_mappings(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Without pathMappings the job stops at the breakpoint, and the Debug Console shows the mapping that was set."""
    port = free_port()
    configuration = attach("rank 0", port)
    del configuration["pathMappings"]
    async with (
        editor.window(configuration) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        await window.until_shown(window.console, "the attach configuration has no pathMappings: ")
