"""Facts about a job that closes all descriptors while an editor is attached."""

import contextlib
import os
from pathlib import Path

import pytest

from relay_agent.debuggee.pydevd_patches.robustness import LOST
from relay_client.dap import DapClient
from relay_core.errors import RelayDebugError
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems do not reuse the numbers")

CODE = """
    import gc, os, pathlib, threading, time
    from relay_agent.debuggee.debugger import debugger, pydevd_debugger
    print(debugger.arm(), flush=True)
    sys.stdin.readline()
    os.closerange(3, 256)
    files = [open(f"data{number}", "wb", buffering=0) for number in range(12)]
    print("closed", flush=True)
    while pydevd_debugger() is not None:
        time.sleep(0.01)
    gc.collect()
    for file in files:
        file.write(b"written")
        file.close()
    print([pathlib.Path(file.name).read_bytes() for file in files] == [b"written"] * 12, flush=True)
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    print("attached", flush=True)
"""


async def test_its_files_are_left_alone(tmp_path: Path) -> None:
    """The session ends with a line, the files contain what the job has written, and a debugger can attach again."""
    async with job(CODE, cwd=tmp_path) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert running.process.stdin is not None
            running.process.stdin.write(b"\n")
            assert "closed" == await running.line()
            with contextlib.suppress(RelayDebugError):
                await client.request("threads", within=DEADLINE)
        assert "True" == await running.line()
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert "attached" == await running.line()
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert (0, [], f"relay-agent: {LOST}\n") == await running.finish()
