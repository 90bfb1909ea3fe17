"""Facts about jobs whose standard library gevent has patched."""

from pathlib import Path

import pytest

from relay_client.dap import Body, DapClient, RequestFailed
from tests.support.debuggers.debuggee import LINE, stopped_at_breakpoint
from tests.support.jobs.running import access, running_client, running_job, step_arguments
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program
from tests.support.network.relay import HC, LocalRelay

pytest.importorskip("gevent", reason="gevent is not installed (make extras)")
pytestmark = pytest.mark.e2e

PATCH = "from gevent import monkey; monkey.patch_all(); "
API = "import relay_agent; relay_agent.start_remote_debugging_from_args(); "
PROGRAM = """\
import sys; print("patched", file=sys.stderr); import itertools, subprocess, time, gevent; subprocess.run(["true"])
total = 0
def count():
    for number in itertools.cycle(range(10)):
        square = number * number; globals().update(total=total + 1)
        time.sleep(0.02)

gevent.joinall([gevent.spawn(count) for _ in range(3)])
"""


@pytest.mark.parametrize("order", [PATCH + API, API + PATCH], ids=["patched before", "patched after"])
@pytest.mark.parametrize("wait", ["0", "60"], ids=["on demand", "waiting"])
async def test_a_breakpoint_stops_all_greenlets(relay: LocalRelay, tmp_path: Path, wait: str, order: str) -> None:
    """A breakpoint in a greenlet stops all of them, a step goes to the next line, and the debugger can come back."""
    script = tmp_path / "greenlets.py"
    script.write_text(order + PROGRAM)
    port = free_port()
    arguments = step_arguments(port, "--debug-wait", wait)
    support = {"GEVENT_SUPPORT": "True"} if wait != "0" and order.startswith(API) else {}
    environment = access(relay, tmp_path, "listen", PYTHONPATH=str(tmp_path), **support)
    async with (
        program("greenlets", *arguments, env=environment) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        if wait == "0":  # otherwise the debugger may start while the program patches
            await job.line("patched")
        await _check_sessions(port, script)
        await _check_log(job)


@pytest.mark.parametrize(
    ("wait", "support"), [("0", {}), ("60", {"GEVENT_SUPPORT": "True"})], ids=["demand", "waiting"]
)
async def test_a_job_under_relay_agent_run(
    relay: LocalRelay, tmp_path: Path, wait: str, support: dict[str, str]
) -> None:
    """The same is true under `relay-agent run`, which has started its thread before the program patches."""
    script = tmp_path / "greenlets.py"
    script.write_text(PATCH + PROGRAM)
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--wait", wait, **support) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        if wait == "0":
            await job.line("patched")
        await _check_sessions(port, script)
        await _check_log(job)


async def test_a_patch_under_a_debugger_ends_the_session(relay: LocalRelay, tmp_path: Path) -> None:
    """Without GEVENT_SUPPORT, the reason is shown in the editor, in the log, and to an editor that attaches later."""
    script = tmp_path / "greenlets.py"
    script.write_text(PATCH + PROGRAM)
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--wait", "3600") as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            await client.wait_for_event("output", matching=says_why, within=DEADLINE)
            await client.wait_for_event("terminated", within=DEADLINE)
        await job.line("patched")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            with pytest.raises(RequestFailed, match="gevent patched the standard library after debugpy"):
                await client.attach({}, within=DEADLINE)
        job.process.terminate()
        log = (await job.finish()).stderr
    assert 1 == log.count("the debugger has ended: gevent patches the standard library under it. hint: set GEVENT_")
    assert "It seems that the gevent monkey-patching" not in log


def says_why(body: Body) -> bool:
    return "gevent patches the standard library under it. hint: set GEVENT_SUPPORT=True" in body["output"]


@pytest.mark.parametrize("order", [PATCH + API, API + PATCH], ids=["patched before", "patched after"])
async def test_a_job_exits_while_an_editor_is_attached(relay: LocalRelay, tmp_path: Path, order: str) -> None:
    """It does not wait for the editor, nor for the threads of the debugger."""
    script = tmp_path / "greenlets.py"
    script.write_text(order + "import time, gevent; gevent.joinall([gevent.spawn(time.sleep, 0.1)]); print('done')\n")
    port = free_port()
    arguments = ("--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-port", str(port))
    environment = access(relay, tmp_path, "listen", PYTHONPATH=str(tmp_path), GEVENT_SUPPORT="True")
    async with (
        program("greenlets", *arguments, env=environment) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        await client.attach({}, within=DEADLINE)
        finished = await job.finish()
        assert (0, "done\n") == (finished.status, finished.stdout)


async def _check_sessions(port: int, script: Path) -> None:
    for _ in range(2):
        async with stopped_at_breakpoint(port, script) as session:
            total = await session.value("total")
            assert LINE + 1 == await session.step()
            assert str(int(total) + 1) == await session.value("total")  # only this greenlet has run


async def _check_log(job: Program) -> None:
    """Check that neither debugpy nor relay-agent gave a hint, up to the last lines, which show that the job ran on."""
    job.process.terminate()
    log = (await job.finish()).stderr
    assert "gevent patche" not in log
    assert "gevent monkey-patching" not in log
