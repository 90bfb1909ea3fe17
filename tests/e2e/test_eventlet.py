"""Facts about jobs whose standard library eventlet has patched, which debugpy does not support."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from relay_client.dap import Body, DapClient, RequestFailed
from relay_core.compat import timeout
from tests.support.jobs.running import access, running_client, running_job, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [
    pytest.mark.e2e,
    # Not imported here: it warns of each later fork of this process.
    pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed (make extras)"),
]

PROGRAM = """\
import warnings; warnings.simplefilter('ignore')
import eventlet
eventlet.monkey_patch()
import os, sys, time
print("patched", file=sys.stderr, flush=True)
while not os.path.exists("stop"):
    time.sleep(0.02)
print("done", flush=True)
"""


async def test_attaching_does_not_end_the_job(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor is shown the reason and what to do, and the job runs to its end."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    port = free_port()
    options = ("--port", str(port), "--debug-ranks", "none")
    async with (
        running_job(relay, script, *options, cwd=tmp_path) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await job.line("patched")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
            with pytest.raises(
                RequestFailed, match=r"uses eventlet\.monkey_patch\(\), and debugpy does not work with eventlet"
            ):
                await dap.attach({}, within=DEADLINE)
        await job.line("hint: leave out monkey_patch() in the debug run")
        (tmp_path / "stop").touch()
        finished = await job.finish()
        assert (0, "done\n") == (finished.status, finished.stdout)


async def test_start_after_the_patch(relay: LocalRelay, tmp_path: Path) -> None:
    """A job that calls the API after eventlet's patch can be reached, and runs to its end."""
    port = free_port()
    start = f"import relay_agent; relay_agent.start_remote_debugging({HC!r}, {port}, wait=0)\n"
    (tmp_path / "train.py").write_text(PROGRAM.replace("import os", f"{start}import os"))
    async with program("train", env=access(relay, tmp_path, "listen"), cwd=tmp_path) as job:
        await job.line("patched")
        await until_registered(relay, tmp_path, 1)
        async with timeout(DEADLINE):
            shown = ""
            while "eventlet/hubs/hub.py" not in shown:  # it runs while the greenlet of the program waits
                stacks = await run("relay_client", "--hc", HC, "stacks", env=access(relay, tmp_path, "send"))
                assert 0 == stacks.status, stacks.stderr
                shown = stacks.stdout
        (tmp_path / "stop").touch()
        finished = await job.finish()
        assert (0, "done\n") == (finished.status, finished.stdout)


async def test_patching_ends_the_debug_session(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor that attached before is shown the reason, and the job runs to its end."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    (tmp_path / "stop").touch()
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port), cwd=tmp_path) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap,
    ):
        await dap.attach({str(script): [{"line": 8}]}, within=DEADLINE)
        await dap.wait_for_event("output", matching=says_why, within=DEADLINE)
        await dap.wait_for_event("terminated", within=DEADLINE)
        finished = await job.finish()
        assert (0, "done\n") == (finished.status, finished.stdout)


def says_why(body: Body) -> bool:
    return "the debugger has ended: debugpy does not work with eventlet. hint: leave out" in body["output"]
