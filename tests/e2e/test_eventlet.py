"""Facts about jobs whose standard library eventlet has patched, which debugpy does not support."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from relay_client.dap.client import DapClient, RequestFailed
from tests.support.deadline import DEADLINE
from tests.support.ports import free_port
from tests.support.relay import LocalRelay
from tests.support.run_job import running_client, running_job

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
