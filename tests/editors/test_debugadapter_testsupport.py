"""Facts about Microsoft's kit for tests of debug adapters, driven through a relay."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.support.machine.deadline import DEADLINE

FOLDER = Path(__file__).parent
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.editors,
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules/@vscode/debugadapter-testsupport").is_dir(),
        reason="@vscode/debugadapter-testsupport is not installed: run make extras",
    ),
]


async def drive(plan: dict[str, object]) -> dict[str, object]:
    """Run a session to its end, and return what it has seen."""
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(FOLDER / "drive_session.js")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    end = asyncio.get_running_loop().call_later(DEADLINE, process.kill)  # so that its log can be shown
    try:
        out, err = await process.communicate(json.dumps(plan).encode())
    finally:
        end.cancel()
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert 0 == process.returncode, err.decode()
    return json.loads(out)


async def test_a_session(project, line: int) -> None:
    """The configuration of `init vscode` attaches; breakpoint, variables and steps work, and the job continues."""
    configuration = await project.configuration()
    plan = {"port": project.port, "configuration": configuration, "path": str(project.script), "line": line}
    assert {
        "capable": True,
        "verified": [True],
        "before": {"step": "0", "steps": "4", "total": "0"},
        "after": {"step": "1", "steps": "4", "total": "0"},
        "evaluated": "0",
    } == await drive(plan)
    finished = await project.job.finish()
    assert (0, "0\n1\n3\n6\n") == (finished.status, finished.stdout)
