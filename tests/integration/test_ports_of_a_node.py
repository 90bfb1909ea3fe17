"""Which of several processes of a node has a port, with real processes and their agent."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.jobs.running import running_job
from tests.support.network.relay import LocalRelay

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


LAUNCHER = """
import os, subprocess, sys
from relay_agent.debuggee.process import current
numbers = {{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}}
for rank in "01":
    rank_environ = {{**os.environ, **numbers, "RANK": rank, "LOCAL_RANK": rank}}
    subprocess.run([sys.executable, "{rank}"], env=rank_environ, check=True)
print(current().attaching.hopeless.wait(3600), current().attaching.obstacle, flush=True)
"""


async def test_a_rank_takes_the_port_of_the_launcher_that_has_started_it(relay: LocalRelay, tmp_path: Path) -> None:
    """A program that starts ranks registers before them; only the ranks keep a port."""
    script = tmp_path / "start.py"
    script.write_text(LAUNCHER.format(rank=write(tmp_path, "rank.py")))
    async with running_job(relay, script, "--debug-ranks", "none") as job:
        finished = await job.finish()
    assert 0 == finished.status
    first, second, launcher = finished.stdout.splitlines()
    assert {"REGISTERED ", "LISTENING "} >= {first, second}
    assert re.fullmatch(
        r"True port 5678 is now that of pid \d+, rank.py, a rank that this process has started", launcher
    )


async def test_of_two_programs_side_by_side_the_second_learns_how_to_get_a_port(
    relay: LocalRelay, tmp_path: Path
) -> None:
    """Its hint names the option, and a variable, because the programs of a run share the options."""
    script = tmp_path / "job.sh"
    second = write(tmp_path, "second.py")
    start = (
        "current().attaching.registered.wait(3600); environ = dict(os.environ); del environ['RELAY_DEBUG_REGISTERED']; "
    )
    start += f"__import__('subprocess').run([sys.executable, {second!r}], env=environ)"
    script.write_text(f"exec {sys.executable} {write(tmp_path, 'first.py', before=start)}")
    async with running_job(relay, script, "--debug-ranks", "none", launcher=["sh"]) as job:
        finished = await job.finish()
    assert 0 == finished.status
    assert (
        "hint: use 'relay-agent run --debug-port 6000 -- ...'; if one run has started both programs, set "
        "RELAY_DEBUG_PORT=6000 for one of them"
    ) in finished.stdout
