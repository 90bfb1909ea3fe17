"""Facts about a process that is held at its first uncaught exception: real processes, real debugpy."""

import pytest

from relay_client.dap.client import DapClient
from tests.support.jobs import job, run_job

HOLD = """\
import threading, time
from relay_agent import crash, debuggee

def hold(what):
    print(what, debuggee.arm(), flush=True)
    return debuggee.wait_for_attach({seconds}, threading.Event())

crash.install(hold)
"""
CRASH = """\
def divide(number):
    secret = number * 2
    return secret / 0

"""


async def test_debugger_stands_at_the_raising_frame():
    """A debugger stands where the exception was raised and reads the variables there; the exit status stays."""
    async with job(HOLD.format(seconds=30) + CRASH + "divide(21)\n") as running:
        what, port = (await running.line()).rsplit(maxsplit=1)
        assert what == "ZeroDivisionError: division by zero"
        async with await DapClient.connect("127.0.0.1", int(port)) as client:
            await client.attach({}, within=30)
            event = await client.wait_for_event("stopped", within=30)
            assert event["body"]["reason"] == "exception"
            thread = event["body"]["threadId"]
            top = (await client.request("stackTrace", {"threadId": thread}, within=30))["stackFrames"][0]
            assert top["name"] == "divide"
            arguments = {"expression": "secret", "frameId": top["id"], "context": "watch"}
            assert (await client.request("evaluate", arguments, within=30))["result"] == "42"
            await client.request("disconnect", {"terminateDebuggee": False}, within=30)
        status, _, err = await running.finish()
    assert status == 1
    assert err.count("ZeroDivisionError: division by zero") == 1


async def test_nobody_comes():
    """A process for which nobody comes ends with its own traceback and status, late but in time."""
    status, out, err = await run_job(HOLD.format(seconds=0.2) + CRASH + "divide(1)")
    assert status == 1
    assert out[0].startswith("ZeroDivisionError: division by zero ")
    assert err.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.parametrize(
    ("code", "status"), [("sys.exit(3)", 3), ("raise SystemExit", 0), ("raise KeyboardInterrupt", -2)]
)
async def test_what_is_no_crash(code, status):
    """A program that ends on purpose is not held."""
    ended, out, _ = await run_job(HOLD.format(seconds=30) + code)
    assert (ended, out) == (status, [])


async def test_own_hook_still_runs():
    """A hook of the job's own runs after the hold, once."""
    code = "sys.excepthook = lambda kind, error, traceback: print('own', error)\n" + HOLD.format(seconds=0.1)
    _, out, err = await run_job(code + "raise ValueError('x')")
    assert out[0].startswith("ValueError: x ")
    assert out[1:] == ["own x"]
    assert "Traceback" not in err


async def test_thread_that_crashes():
    """An exception in a thread holds as well; the second crash of a process does not."""
    code = HOLD.format(seconds=0.1) + (
        "for _ in range(2):\n"
        "    thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()\n"
        "print('end')"
    )
    status, out, err = await run_job(code)
    assert status == 0
    assert [line.rsplit(maxsplit=1)[0] for line in out[:-1]] == ["ZeroDivisionError: division by zero"]
    assert out[-1] == "end"
    assert err.count("ZeroDivisionError") == 2


async def test_workers_that_catch_their_exceptions():
    """`hold_on_crash` holds where an exception never becomes uncaught and passes it on, in an ordinary run at once."""
    code = (
        "from relay_agent import crash\n"
        "@crash.hold_on_crash()\n"
        "def work(): 1 / 0\n"
        "def attempt():\n"
        "    try: work()\n"
        "    except ZeroDivisionError as error: print(error)\n"
        "attempt()\n" + HOLD.format(seconds=0.1) + "attempt()\n"
    )
    status, out, _ = await run_job(code)
    assert status == 0
    assert [out[0], out[2]] == ["division by zero"] * 2
    assert out[1].startswith("ZeroDivisionError: division by zero ")
