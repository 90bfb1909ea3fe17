"""Facts about values that take long to format and are left to debugpy, with prefetch and without."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_core.hyco.address import Endpoint
from tests.support.editors.vscode_variables import VariablesPane
from tests.support.jobs.processes import job
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE, IDLE
from tests.support.machine.ports import free_port
from tests.support.network.relay import HC, LocalRelay

SECONDS = 2.0
"""To format the value."""
PATIENCE = {"PYDEVD_UNBLOCK_THREADS_ON_VARIABLES_TIMEOUT": "0.5"}
"""Seconds after which pydevd lets other threads run meanwhile; 3 by default."""
SCRIPT = f"""\
import time

class Slow:
    def __repr__(self):
        time.sleep({SECONDS})
        return "slow"

def work():
    number = 7
    number += 1
    value = Slow()
    number += 1
    return number

while True:
    work()
"""
LINE = SCRIPT.splitlines().index("    number += 1") + 1
DIRECT = """
import runpy, sys, debugpy
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
debugpy.wait_for_client()
runpy.run_path(sys.argv[1])
"""


@contextlib.asynccontextmanager
async def directly(_relay: LocalRelay, script: Path) -> AsyncIterator[int]:
    """Run the script under debugpy alone."""
    async with job(DIRECT, str(script), PYDEVD_DISABLE_FILE_VALIDATION="1", **PATIENCE) as running:
        yield int(await running.line())


@contextlib.asynccontextmanager
async def through_relay(relay: LocalRelay, script: Path) -> AsyncIterator[int]:
    """Run the script as a job behind a relay; the agent prefetches."""
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--debug-values", "off", **PATIENCE),
        Tunnels(Endpoint("localhost", relay.server.port, HC), relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        yield port


@pytest.mark.parametrize("run", [directly, through_relay])
async def test_variables_of_the_first_request_are_shown(relay: LocalRelay, tmp_path: Path, run) -> None:
    """They arrive before the events about the threads that ran meanwhile, so the editor does not request them again."""
    script = tmp_path / "slow.py"
    script.write_text(SCRIPT)
    async with run(relay, script) as port, await VariablesPane.connect("127.0.0.1", port) as pane:
        await pane.attach({str(script): [{"line": LINE}]}, justMyCode=False, within=DEADLINE)
        thread = 1
        values, _ = await pane.shown()
        assert "7" == values["number"]
        await pane.step(thread)
        assert "8" == (await pane.shown())[0]["number"]
        await pane.step(thread)
        values, seconds = await pane.shown()
        assert ("8", "slow") == (values["number"], values["value"])
        await pane.wait_for_event("stopped", within=DEADLINE)
        assert ["continued", "stopped", "variables", "continued", "stopped"] == pane.received
        assert seconds < 2 * SECONDS * DEADLINE / IDLE
