"""Which of several processes of a node has a port, with real processes and their agent."""

import sys
from pathlib import Path

import pytest

from tests.support.relay import LocalRelay
from tests.support.run_job import running_job

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the agent reads /proc")

PROGRAM = """
import os, sys
from relay_agent.debuggee.process import current
{before}
attaching = current().attaching
attaching.registered.wait(3600)
print(attaching.state.name, attaching.obstacle or "", flush=True)
"""


def write(directory: Path, name: str, before: str = "") -> str:
    """Write a program that prints whether it has its port."""
    path = directory / name
    path.write_text(PROGRAM.format(before=before))
    return str(path)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
async def test_a_process_that_has_ended_does_not_keep_its_port(relay: LocalRelay, tmp_path: Path, end: str) -> None:
    """The next program of the run has the port, even if the first one has ended before the agent could serve it."""
    script = tmp_path / "job.sh"
    first, second = write(tmp_path, "first.py", before=end), write(tmp_path, "second.py")
    script.write_text(f"{sys.executable} {first}; exec {sys.executable} {second}")
    async with running_job(relay, script, "--debug-ranks", "none", launcher=["sh"]) as job:
        finished = await job.finish()
    assert (0, "") == (finished.status, finished.stdout.partition(" ")[2].strip())
