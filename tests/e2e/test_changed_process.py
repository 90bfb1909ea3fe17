"""Facts about jobs that remove their working directory, or the directories from which Python imports modules."""

from pathlib import Path

import pytest

from relay_client.dap import DapClient, RequestFailed
from tests.support.debuggers.debuggee import stopped_at_breakpoint
from tests.support.jobs.running import access, running_client, running_job, step_arguments
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

IN_REMOVED_DIRECTORY = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd())"
API = "import relay_agent; relay_agent.start_remote_debugging_from_args()"
COUNT = """; import sys, time; print("started", file=sys.stderr)
def count():
    number = 0
    while True:
        number = number % 10 + 1
        time.sleep(0.02)
count()
"""
CLEARED_LATER = """\
import os, sys, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.02)
wait_for("listening")
sys.path.clear()
print("cleared", file=sys.stderr)
wait_for("end")
"""


@pytest.mark.parametrize("order", [(IN_REMOVED_DIRECTORY, API), (API, IN_REMOVED_DIRECTORY)], ids=["before", "after"])
async def test_a_job_whose_directory_was_removed(relay: LocalRelay, tmp_path: Path, order: tuple[str, str]) -> None:
    """A debugger attaches and stops at a breakpoint, whether the directory was removed before the start or after it."""
    script = tmp_path / "train.py"
    script.write_text("; ".join(order) + COUNT)
    port = free_port()
    options = step_arguments(port, "--debug-wait", "0")
    async with (
        program("train", *options, env=access(relay, tmp_path, "listen"), cwd=tmp_path) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await job.line("started")
        async with stopped_at_breakpoint(port, script) as session:
            assert await session.step()


REASON = "because the job has removed Python's directories from sys.path"


async def test_a_job_that_has_cleared_its_path(relay: LocalRelay, tmp_path: Path) -> None:
    """The log states why the job cannot be debugged, and the job continues."""
    (tmp_path / "train.py").write_text(f"import relay_agent, sys; sys.path.clear(); {API[20:]}; print('done')")
    environment = access(relay, tmp_path, "listen", PYTHONPATH=str(tmp_path))
    finished = await run("train", "--is-debug", "true", "--debug-relay-connection-name", HC, env=environment)
    assert (0, "done\n") == (finished.status, finished.stdout)
    assert REASON in finished.stderr


async def test_a_job_that_clears_its_path_later(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor that attaches is sent the reason."""
    (tmp_path / "train.py").write_text(CLEARED_LATER)
    port = free_port()
    async with (
        running_job(relay, tmp_path / "train.py", "--port", str(port), "--wait", "0", cwd=tmp_path) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await job.line(f"listening on '{HC}'")
        (tmp_path / "listening").touch()
        await job.line("cleared")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
            with pytest.raises(RequestFailed, match=REASON):
                await dap.attach({}, within=DEADLINE)
