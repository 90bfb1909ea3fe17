"""Facts about the end of debugpy's adapter; `test_debugger` has those about who may connect to it."""

import asyncio
import os
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.debuggers.armed import adapter, adapter_ports, armed, until_adapter_has_ended
from tests.support.jobs.processes import ROOT, job, run_job
from tests.support.machine.deadline import DEADLINE

GUARD = ROOT / "relay_agent/debuggee/adapter_guard"


def changed_guard(directory: Path, change: str) -> Path:
    """Return a directory with a `sitecustomize` that first changes the module `os` of its adapter."""
    path = str(GUARD / "sitecustomize.py")
    run = f"exec(open({path!r}).read(), {{'__name__': 'sitecustomize', '__file__': {path!r}}})\n"
    (directory / "sitecustomize.py").write_text(f"import os\n{change}\n{run}")
    return directory


async def test_output_ends_with_the_job():
    """Whoever reads the job's output to its end does not wait for an editor that is still connected."""
    code = """
        print(port, flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()))
    """
    async with (
        job(armed(code)) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({}, within=DEADLINE)
        assert await running.finish() == (0, ["True"], "")


async def test_job_without_standard_streams():
    """The adapter has the null device in their place, so that no descriptor of its own gets their numbers."""
    code = """
        import os, threading
        os.close(0)
        os.close(2)
        from relay_agent.debuggee.debugger import debugger
        print(debugger.arm(), flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()))
    """
    async with job(code) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert ["0", "1", "2"] == null_descriptors(adapter(port))
            assert await running.finish() == (0, ["True"], "")


async def test_adapter_without_resources(tmp_path):
    """The adapter accepts editors even if its streams could not be replaced."""
    guard = changed_guard(tmp_path, "def fail(*_, **named): raise OSError(24, 'too many')\nos.dup2 = fail")
    code = f"""
        import threading
        from pathlib import Path
        from relay_agent.debuggee import adapter_start
        from relay_agent.debuggee.debugger import debugger
        adapter_start.ADAPTER_GUARD = Path({str(guard)!r})
        print(debugger.arm(), flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
    """
    async with job(code) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert "True" == await running.line()
        assert (0, [], "") == await running.finish()


async def test_installed_packages_are_not_read(tmp_path):
    """The adapter does not read the metadata of the installed packages for its log, which is off."""
    listed = tmp_path / "listed"
    guard = changed_guard(
        tmp_path, f"import importlib.metadata as m\nm.distributions = lambda **_: open({str(listed)!r}, 'w') and []"
    )
    code = f"""
        from pathlib import Path
        from relay_agent.debuggee import adapter_start
        from relay_agent.debuggee.debugger import debugger
        adapter_start.ADAPTER_GUARD = Path({str(guard)!r})
        print(debugger.arm() > 0)
    """
    assert (0, ["True"], "") == await run_job(code)
    assert not listed.exists()


def null_descriptors(pid: int) -> list[str]:
    """Return the numbers of the descriptors that refer to the null device (proc(5))."""
    return [path.name for path in Path(f"/proc/{pid}/fd").iterdir() if path.readlink() == Path(os.devnull)]


@pytest.mark.parametrize("are_reported", [True, False], ids=["reported", "not-reported"])
async def test_process_that_ends_before_it_connects(tmp_path, are_reported):
    """Its adapter ends with it, whether or not the system reports exits."""
    guard = GUARD if are_reported else changed_guard(tmp_path, "os.__dict__.pop('pidfd_open', None)")
    code = f"""
        import os
        from pathlib import Path
        from relay_agent.debuggee import adapter_start, debugpy_start
        adapter_start.ADAPTER_GUARD = Path({str(guard)!r})
        debugpy = debugpy_start.load(follow_children=False)
        from debugpy.server import api
        def end(port, **_):  # as if it were killed after it has started the adapter
            print(port, flush=True)
            os._exit(3)
        api._settrace = end
        debugpy_start.listen(debugpy)
    """
    status, out, err = await run_job(code)
    assert 3 == status, err
    await asyncio.wait_for(until_adapter_has_ended(int(out[0])), DEADLINE)


async def test_editor_that_leaves_before_the_process_has_connected():
    """The adapter still waits for the process, and the next editor can attach to it."""
    code = """
        import sys, threading
        from relay_agent.debuggee import debugpy_start
        from relay_agent.debuggee.debugger import debugger
        debugpy_start.load(follow_children=False)
        from debugpy.server import api
        connect = api._settrace
        def connect_later(port, **named):
            print(port, flush=True)
            sys.stdin.readline()
            connect(port=port, **named)
        api._settrace = connect_later
        debugger.arm()
        print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
    """
    async with job(code) as running:
        server = int(await running.line())
        (port,) = {*await adapter_ports(server)} - {server}
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as first:
            await first.request("disconnect", within=DEADLINE)
        running.process.stdin.write(b"\n")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as second:
            await second.attach({}, within=DEADLINE)
            assert (0, ["True"], "") == await running.finish()
