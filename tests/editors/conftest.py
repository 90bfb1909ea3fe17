"""A job that waits for a debugger behind a relay, and a project folder configured by `relay-client init vscode`."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.jobs.running import running_client, running_job
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, run
from tests.support.network.relay import LocalRelay

SCRIPT = """\
def train(steps):
    total = 0
    for step in range(steps):
        total += step
        print(total, flush=True)
    return total

train(4)
"""
LINE = SCRIPT.splitlines().index("        total += step") + 1


@dataclass
class Project:
    """What an editor has open, and the job that runs the same script elsewhere."""

    folder: Path
    port: int
    job: Program
    client: Program

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    async def snippet(self, editor: str) -> str:
        """Return what `relay-client init` prints for an editor."""
        finished = await run("relay_client", "init", editor, "--ports", str(self.port), "--folder", str(self.folder))
        assert 0 == finished.status, finished.stderr
        return finished.stdout

    async def configuration(self) -> dict[str, Any]:
        """Let `relay-client init vscode` write its files, and return the configuration as VS Code resolves it."""
        where = ("--ports", str(self.port), "--folder", str(self.folder))
        assert 0 == (await run("relay_client", "init", "vscode", *where, "--write")).status
        text = (self.folder / ".vscode/launch.json").read_text()
        (found,) = json.loads(text.replace("${workspaceFolder}", str(self.folder)))["configurations"]
        return found


@pytest_asyncio.fixture
async def project(relay: LocalRelay, tmp_path: Path) -> AsyncIterator[Project]:
    """A project whose job waits for a debugger, and a relay-client for its port."""
    folder, node, port = tmp_path / "project", tmp_path / "node", free_port()
    for each in (folder, node):
        each.mkdir()
        (each / "train.py").write_text(SCRIPT)
    async with contextlib.AsyncExitStack() as stack:
        starting = running_job(relay, node / "train.py", "--port", str(port), cwd=node)
        job = await stack.enter_async_context(starting)
        client = await stack.enter_async_context(running_client(relay, tmp_path, "--ports", str(port)))
        yield Project(folder, port, job, client)


@pytest.fixture
def line() -> int:
    """Number of the line at which the tests stop."""
    return LINE
