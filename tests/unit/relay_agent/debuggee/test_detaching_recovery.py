"""Facts about a debugger that no longer responds, in a job with the real debugpy."""

from pathlib import Path

import pytest

from relay_client.dap import DapClient, RequestFailed
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

CODE = """
    import runpy, threading
    from relay_agent.debuggee.debugger import debugger
    from relay_agent.debugpy_internals.table import CONTINUING
    CONTINUING.is_off = True  # as with a debugpy for which relay-debug has no patch
    attached = threading.Semaphore(0)

    class Helper(threading.Thread):  # as that of relay-agent, which a debugger does not stop
        pydev_do_not_trace = is_pydev_daemon_thread = True

        def run(self):
            for _ in range(2):
                print(debugger.arm(), flush=True)
                debugger.wait_for_attach(3600, threading.Event())
                attached.release()
                sys.stdin.readline()
                debugger.release()
                print(debugger.state.name, flush=True)

    helper = Helper()
    helper.start()
    for _ in range(2):
        while not attached.acquire(timeout=0.05):
            pass
        runpy.run_path(sys.argv[1])
    helper.join()
"""
PROGRAM = """\
import sys

def hang():
    sys.modules["pydevd"].get_global_debugger()._main_lock.acquire()

number = 7
square = number * number
"""
BREAKPOINT = 7
"""The line of `square = ...`."""
LOGGED = "relay-agent: debugpy no longer responds; its session was ended, and a debugger can attach again\n"


async def attach(port: str, script: Path) -> tuple[DapClient, dict[str, int]]:
    """Attach, and wait until the job stands at the breakpoint."""
    client = await DapClient.connect("127.0.0.1", int(port), within=DEADLINE)
    await client.attach({str(script): [{"line": BREAKPOINT}]}, within=DEADLINE)
    return client, {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}


async def hold_lock(client: DapClient, thread: dict[str, int]) -> None:
    """Let the job's thread take pydevd's lock and not give it back."""
    frame = (await client.request("stackTrace", {**thread, "levels": 1}, within=DEADLINE))["stackFrames"][0]["id"]
    await client.request("evaluate", {"expression": "hang()", "frameId": frame}, within=DEADLINE)


async def continue_twice(client: DapClient, thread: dict[str, int]) -> None:
    """Continue a job that is running: debugpy never answers, and no request after it (microsoft/debugpy#2048)."""
    await client.request("continue", thread, within=DEADLINE)
    with pytest.raises(RequestFailed):
        await client.request("continue", thread, within=1)


@pytest.mark.parametrize("silence", [hold_lock, continue_twice])
async def test_silent_debugger_is_ended(tmp_path: Path, silence) -> None:
    """When its editor has left, the job runs on, and the next editor can attach and stop."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with job(CODE, str(script)) as running:
        assert running.process.stdin is not None
        client, thread = await attach(await running.line(), script)
        await silence(client, thread)
        with pytest.raises(RequestFailed):
            await client.request("threads", within=1)
        await client.close()
        running.process.stdin.write(b"\n")
        assert "CLEARED" == await running.line()
        client, thread = await attach(await running.line(), script)
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await client.close()
        status, out, err = await running.finish()
    assert (0, ["RELEASED"]) == (status, out)
    assert 1 == err.count(LOGGED)
