"""Facts about Python's `breakpoint()` in a process that was made debuggable, whose stdin is empty."""

import asyncio

import pytest

from relay_client.dap import DapClient
from relay_core.net.tasks import cancel_and_wait
from tests.support.editors.follower import Follower
from tests.support.jobs import running as run_job_support
from tests.support.jobs.processes import job, run_job
from tests.support.machine.deadline import DEADLINE

ARGUMENTS = ("--is-debug", "--debug-relay-connection-name=myhc", "--debug-wait=0")
START = """
import os, relay_agent
sys.stdin = open(os.devnull)
relay_agent.start_remote_debugging_from_args()
"""
IN_A_FILE = """
exec(compile("def train():\\n breakpoint()\\n return 'trained'\\n", "train.py", "exec"), globals())
"""

BROKEN_DEBUGPY = """
from relay_agent.debuggee import breakpoint_hook, debugpy_start
breakpoint_hook.install()
sys.modules["_pydevd_bundle.pydevd_plugin_utils"] = None  # pydevd imports it after it has set its own hook
try:
    debugpy_start.load(follow_children=False)
except ImportError:
    breakpoint()
    print("the job continues")
"""


@pytest.fixture
def access(relay, tmp_path):
    return run_job_support.access(relay, tmp_path, "listen")


async def test_nobody_attaches(access):
    """The first call waits as long as --debug-hold, later calls continue at once, and the job runs to its end."""
    code = START + IN_A_FILE + "print(train(), train(), train())"
    status, out, err = await run_job(code, *ARGUMENTS, "--debug-hold=0.1", **access)
    assert (0, ["trained trained trained"]) == (status, out)
    assert 1 == err.count("breakpoint() at train.py:2: waiting up to 0.1 s for a debugger on port 5678 ('myhc')")
    assert 1 == err.count("breakpoint() at train.py:2: continuing, because no debugger is attached")


async def test_a_rank_that_does_not_wait(access):
    """It continues, and so does a forked child, which is not registered."""
    code = START + IN_A_FILE + "if not os.fork(): train(); os._exit(0)\nprint(train(), os.wait()[1])"
    status, out, err = await run_job(code, *ARGUMENTS, "--debug-ranks=none", **access)
    assert (0, ["trained 0"]) == (status, out)
    assert 1 == err.count("breakpoint() at train.py:2: continuing, because no debugger is attached")
    assert "waiting" not in err


async def test_a_function_that_the_user_has_chosen(access):
    """PYTHONBREAKPOINT and a hook of the job take precedence."""
    code = START + IN_A_FILE + "train(); sys.breakpointhook = lambda: print('mine'); train()"
    _, out, _ = await run_job(code, *ARGUMENTS, PYTHONBREAKPOINT="builtins.print", **access)
    assert ["", "mine"] == out
    first = f"sys.breakpointhook = lambda: print('mine'){START}"
    assert ["mine"] == (await run_job(first + IN_A_FILE + "train()", *ARGUMENTS, **access))[1]


async def test_a_debugpy_that_cannot_be_imported():
    """The hook remains in use, and continues with one line."""
    status, out, err = await run_job(BROKEN_DEBUGPY)
    assert (0, ["the job continues"], 1) == (status, out, len(err.splitlines()))
    assert "breakpoint() at <string>:9: continuing, because no debugger is attached" in err


async def test_with_a_debugger_and_after_it(access, tmp_path):
    """It stops in its caller while a debugger is attached; after the debugger has left, it waits and then continues."""
    script = tmp_path / "train.py"
    script.write_text("def train():\n    breakpoint()\n    return 'trained'\n")
    code = (
        START
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
from relay_agent.debuggee.debugger import debugger
from train import train
print(debugger.arm(), flush=True)
debugger.wait_for_attach(3600, __import__("threading").Event())
print(train(), flush=True)
while debugger.is_attached(): pass
debugger.release()
print(train())
"""
    )
    async with job(code, *ARGUMENTS, "--debug-hold=0.1", **access) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            thread = (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
            top = (await client.request("stackTrace", {"threadId": thread}, within=DEADLINE))["stackFrames"][0]
            assert ("train", 3) == (top["name"], top["line"])
            await client.request("continue", {"threadId": thread}, within=DEADLINE)
            assert "trained" == await running.line()
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, out, err = await running.finish()
    assert (0, ["trained"]) == (status, out)
    assert "breakpoint() at train.py:2: continuing" in err


@pytest.mark.parametrize("method", ["spawn", "forkserver", "subprocess"])
async def test_child_processes(access, tmp_path, method):
    """A child that was started with exec continues with one line, in a run whose debug arguments are invalid, too."""
    (tmp_path / "work.py").write_text(
        "def train():\n    breakpoint()\n    breakpoint()\n    print('trained', flush=True)\n"
    )
    code = (
        START
        + f"""
if __name__ == "__main__":
    sys.path.insert(0, {str(tmp_path)!r})
    import multiprocessing, subprocess, work
    if {method!r} == "subprocess":
        command = [sys.executable, "-c", "import sys; sys.path[:0] = " + repr(sys.path) + "; import work; work.train()"]
        print(subprocess.run(command, stdin=subprocess.DEVNULL).returncode)
    else:
        child = multiprocessing.get_context({method!r}).Process(target=work.train)
        child.start(); child.join(); print(child.exitcode)
"""
    )
    for arguments in (ARGUMENTS, (*ARGUMENTS, "--debug-hold=soon")):
        status, out, err = await run_job(code, *arguments, "--debug-ranks=none", **access)
        assert (0, ["trained", "0"]) == (status, out), err
        for line in (2, 3):
            assert 1 == err.count(f"breakpoint() at work.py:{line}: continuing, because no debugger is attached")


async def test_invalid_arguments(access):
    """The job continues at a `breakpoint()` although its debug arguments are invalid."""
    code = START + IN_A_FILE + "print(train(), train())"
    status, out, err = await run_job(code, *ARGUMENTS, "--debug-hold=soon", **access)
    assert (0, ["trained trained"]) == (status, out)
    assert 1 == err.count("breakpoint() at train.py:2: continuing, because no debugger is attached")


async def test_child_process_that_is_followed(access, tmp_path):
    """A child that a debugger follows keeps debugpy's function for `breakpoint()`."""
    script = tmp_path / "work.py"
    script.write_text("import sys\ndef train():\n    print(sys.breakpointhook.__name__, flush=True)\n")
    code = (
        START
        + f"""
if __name__ == "__main__":
    sys.path.insert(0, {str(tmp_path)!r})
    import multiprocessing, threading, work
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(follow_children=True), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    child = multiprocessing.get_context("spawn").Process(target=work.train)
    child.start(); child.join(); print(child.exitcode, flush=True)
    while debugger.is_attached(): pass
"""
    )
    async with job(code, *ARGUMENTS, "--debug-ranks=none", **access) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            follower = Follower(script, 3)
            await client.attach({}, within=DEADLINE)
            following = asyncio.create_task(follower.follow(client))
            assert ["debugpy_breakpointhook", "0"] == [await running.line(), await running.line()]
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
            await cancel_and_wait(following)
            await follower.leave()
        assert 0 == (await running.finish())[0]
