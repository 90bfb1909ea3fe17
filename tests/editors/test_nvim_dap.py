"""Facts about Neovim with nvim-dap, driven through a relay.

No package of PyPI, npm or Debian has nvim-dap, so `make extras` downloads it from its repository, or NVIM_DAP names a
directory with the plugin. Debian 12 has Neovim 0.7, for which that is nvim-dap 0.6.0.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from relay_client.editor_setup.entries import SNIPPETS, Entry
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import environment

FOLDER = Path(__file__).parent
NVIM = shutil.which("nvim")
DOWNLOADED = FOLDER.parents[1] / ".nvim-dap"
PLUGIN = os.environ.get("NVIM_DAP", "") or (str(DOWNLOADED) if DOWNLOADED.is_dir() else "")

pytestmark = [
    pytest.mark.editors,
    pytest.mark.skipif(NVIM is None, reason="Neovim is not installed: run make extras as root, or install it"),
]


async def drive(directory: Path, plan: dict[str, object]) -> dict[str, object]:
    """Run a session in Neovim to its end, and return what it has seen."""
    (directory / "plan").write_text(json.dumps({"result": str(directory / "seen"), **plan}))
    process = await asyncio.create_subprocess_exec(
        *(NVIM, "--headless", "--clean", "-i", "NONE", "-n", "--cmd", f"set runtimepath^={PLUGIN}"),
        *("-c", f"luafile {FOLDER / 'drive_nvim.lua'}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory / "project",
        env=environment(PLAN=str(directory / "plan"), HOME=str(directory), XDG_CACHE_HOME=str(directory)),
    )
    output = asyncio.create_task(process.stdout.read())
    try:
        await asyncio.wait({output}, timeout=DEADLINE)
    finally:
        if process.returncode is None:
            process.kill()
        shown = await output
        await process.wait()
    assert (directory / "seen").exists(), shown.decode()
    return json.loads((directory / "seen").read_text())


async def test_the_snippet_is_lua(tmp_path: Path) -> None:
    """Neovim compiles what `init nvim` prints, also with odd names in it."""
    snippet, entries = tmp_path / "snippet.lua", [Entry('rank 0 ("a\\b")', 5678)]
    snippet.write_text(SNIPPETS["nvim"](entries, str(tmp_path)))
    process = await asyncio.create_subprocess_exec(
        *(NVIM, "--headless", "--clean", "-i", "NONE", "-n"),
        *("-c", f"lua print(loadfile('{snippet}') and 'compiled')", "-c", "qa!"),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path)),
    )
    _, shown = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert "compiled" == shown.decode().strip()


@pytest.mark.skipif(not PLUGIN, reason="nvim-dap could not be downloaded, and NVIM_DAP does not name it")
@pytest.mark.parametrize(("source", "ending"), [("snippet", "disconnect"), ("launch.json", "terminate")])
async def test_a_session(project, line: int, tmp_path: Path, source: str, ending: str) -> None:
    """What `init` prints or writes attaches; breakpoint, step and variables work, and the job outlives both endings."""
    (tmp_path / "snippet.lua").write_text(await project.snippet("nvim"))
    launch_json = ""
    if source == "launch.json":
        await project.configuration()
        launch_json = str(project.folder / ".vscode/launch.json")
    seen = await drive(
        tmp_path,
        {
            "snippet": str(tmp_path / "snippet.lua"),
            "launch_json": launch_json,
            "script": str(project.script),
            "line": line,
            "ending": ending,
        },
    )
    values = {"file": str(project.script), "step": "0", "steps": "4", "total": "0"}
    assert [
        {"reason": "breakpoint", "locals": {"line": line, **values}},
        {"reason": "step", "locals": {"line": line + 1, **values}},
    ] == seen["stops"]
    assert ("the job continues" in seen.get("output", "")) == (ending == "terminate")
    finished = await project.job.finish()
    assert (0, "0\n1\n3\n6\n") == (finished.status, finished.stdout)
