"""Jobs of the project that a window shows: copies of its script on a node, waiting for a debugger."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.editors.vscode.workspace import SCRIPT, Workspace
from tests.support.jobs.running import running_job
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay

__all__ = ["RANKS_PROGRAM", "RANKS_SCRIPT", "waiting_job"]

RANKS_SCRIPT = "ranks.py"
RANKS_PROGRAM = """\
import os
import time

import numpy as np

weights = np.full((64, 32), 0.5, "float32")
if os.environ["RELAY_RANK"] == "2":
    weights[3, 4] = 7
number = 0
while True:
    number += 1
    square = number * number
    double = number + number
    time.sleep(0.02)
"""
"""Rank 2 has another weight than the others."""


@contextlib.asynccontextmanager
async def waiting_job(
    workspace: Workspace,
    relay: LocalRelay,
    directory: Path,
    port: int,
    *options: str,
    name: str = SCRIPT,
    **variables: str,
) -> AsyncIterator[Program]:
    """Run a copy of a script of the project under `relay-agent run`, in its own directory; it waits for a debugger.

    Args:
        workspace: The project.
        relay: To listen on.
        directory: The copy is in `directory`/job.
        port: Of rank 0.
        options: Of `relay-agent run`.
        name: The script.
        variables: More of its environment.
    """
    node = workspace.copy(directory / "job")
    async with running_job(relay, node / name, "--port", str(port), *options, cwd=node, **variables) as job:
        yield job
