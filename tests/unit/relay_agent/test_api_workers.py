"""Facts about the functions for jobs in processes to which no debugger can attach."""

import os
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.processes import job, run_job
from tests.support.machine.deadline import DEADLINE

ARGUMENTS = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-wait=3600", "--debug-on-timeout=abort"]
CALL = "import relay_agent; print(relay_agent.start_remote_debugging_from_args(), flush=True)\n"
PROGRAM = """
import multiprocessing, os, sys
import relay_agent
if __name__ == "__main__":
    from relay_agent.debuggee import breakpoint_hook
    from relay_agent.debuggee.debugger import debugger
    breakpoint_hook.install()  # as the call below does, before a debugger is imported
    print(debugger.arm(), flush=True)
attached = relay_agent.start_remote_debugging_from_args()
if __name__ == "__main__":
    print(attached, flush=True)

def work(_number):
    breakpoint()
    relay_agent.breakpoint()
    return attached, bool({"debugpy", "pydevd"} & set(sys.modules))

if __name__ == "__main__":
    sys.stdin.readline()
    with multiprocessing.get_context(os.environ["METHOD"]).Pool(1) as pool:
        print(pool.map(work, range(2)))
"""
AS_A_FILE = "import os; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


def access(relay, directory: Path) -> dict[str, str]:
    secret = str(relay.connection_file(directory, "listen"))
    return {"RELAY_CONNECTION_STRING_FILE": secret, "RELAY_CA_FILE": str(relay.ca_file)}


@pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
async def test_workers_that_import_the_program_anew(relay, tmp_path, method):
    """The call does nothing in them, and `breakpoint()` continues: neither imports a debugger, or ends them."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    async with job(AS_A_FILE, str(program), *ARGUMENTS, **access(relay, tmp_path), METHOD=method) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert "True" == await running.line()
        status, out, err = await running.finish()
    assert (0, ["[(False, False), (False, False)]"]) == (status, out)
    assert "waiting up to" not in err
    assert "refused" not in err
    assert "exiting" not in err


async def test_a_process_that_was_refused_never_exits(relay, tmp_path):
    """Another process has its port: it does not wait, and continues in spite of `--debug-on-timeout abort`."""
    hold = CALL + "process = __import__('relay_agent.debuggee.process').debuggee.process.current()\n"
    hold += "print(process.attaching.registered.wait(3600), flush=True); sys.stdin.readline()"
    environment = access(relay, tmp_path)
    async with job(hold, *ARGUMENTS, "--debug-ranks=none", **environment) as holder:
        assert ["False", "True"] == [await holder.line(), await holder.line()]
        status, out, err = await run_job(CALL, *ARGUMENTS, **environment)
        await holder.finish()
    assert (0, ["False"]) == (status, out)
    assert "continuing without a debugger: port 5678 is already in use on this node by pid" in err
    assert "waiting up to" not in err
    assert "exiting" not in err


WITHOUT_PACKAGES = """
import os
code = f"import sys; sys.path.insert(0, {sys.path[0]!r})\\n" + os.environ["CALL"]
os.execv(sys.executable, [sys.executable, "-S", "-c", code, *sys.argv[1:]])
"""


@pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")
async def test_a_job_without_debugpy_does_not_wait(relay, tmp_path):
    """One line at the start states the reason with a hint."""
    status, out, err = await run_job(WITHOUT_PACKAGES, *ARGUMENTS[:-1], **access(relay, tmp_path), CALL=CALL)
    assert (0, ["False"]) == (status, out)
    assert "continuing without a debugger: debugpy is not installed in the job's Python; install it there" in err
    assert "waiting up to" not in err
