"""Facts about the debugger in a job: the real debugpy, in processes of its own."""

import asyncio
import sys
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from relay_core.errors import ConnectionLost
from tests.support.debuggers.armed import REARMED, adapter_ports, armed
from tests.support.editors.listening import listening_editor
from tests.support.jobs.processes import job, run_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import connecting_stranger, lying_stranger, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.streams import local_server


async def test_arm_listens_on_a_port_of_its_own():
    """`arm` returns a port where a debugger can attach, and the wait then ends at once."""
    code = """
        print(port, flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()), debugger.is_attached(), flush=True)
        sys.stdin.readline()
    """
    async with job(armed(code)) as running:
        client = await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE)
        await client.attach({}, within=DEADLINE)
        assert await running.line() == "True True"
        await client.close()
        assert await running.finish() == (0, [], "")


async def test_job_that_listens_as_well():
    """The job's own `debugpy.listen` gets the port of the running debugger, and one line, instead of an error."""
    code = """
        import debugpy
        print(debugpy.listen(0) == ("127.0.0.1", port), debugpy.listen(("0.0.0.0", 5678)) == ("127.0.0.1", port))
        sys.exit(3)
    """
    status, out, err = await run_job(armed(code))
    assert (3, ["True True"]) == (status, out)
    assert "debugpy.listen(): the debugger that was started for relay-client is used, on port" in err


async def test_connections_that_are_closed_immediately(tmp_path):
    """The next debugger can attach: debugpy's adapter alone would accept no further one (microsoft/debugpy#1308)."""
    async with job(armed(REARMED), str(endless(tmp_path))) as running:
        port = int(await running.line())
        for _ in range(10):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.transport.abort()
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)


@pytest.mark.parametrize("last_request", [None, "threads"])
async def test_debugger_that_attaches_while_another_one_is_leaving(tmp_path, last_request):
    """It attaches as soon as pydevd has ended the previous session, and a third one can attach after it.

    While the adapter waits for the response to a last request, it does not notice that the editor has left.
    """
    code = """
        def control():
            lock = sys.modules["pydevd"].get_global_debugger()._main_lock
            sys.stdin.readline()
            with lock:  # pydevd ends no session meanwhile
                print("held", flush=True)
                sys.stdin.readline()
        threading.Thread(target=control, daemon=True).start()
        print(port, flush=True)
        import runpy
        runpy.run_path(sys.argv[1])
    """
    async with job(armed(code), str(endless(tmp_path))) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as first:
            await first.attach({}, within=DEADLINE)
            running.process.stdin.write(b"\n")
            assert "held" == await running.line()
            if last_request is not None:
                asking = asyncio.ensure_future(first.request(last_request, within=DEADLINE))
                assert not (await asyncio.wait([asking], timeout=0))[0]  # it has been sent
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as second:
            attaching = asyncio.ensure_future(second.attach({}, within=DEADLINE))
            assert not (await asyncio.wait([attaching], timeout=0.5))[0]
            running.process.stdin.write(b"\n")
            await attaching
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as third:
            await third.attach({}, within=DEADLINE)
        if last_request is not None:
            with pytest.raises(ConnectionLost):
                await asking


def endless(directory: Path) -> Path:
    script = directory / "loop.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.005)\n")
    return script


@needs_second_user
async def test_other_users_cannot_reach_the_debugger():
    """Both ports of debugpy's adapter reset other users' connections, before, during and after an attach."""
    code = """
        print(port, flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
        sys.stdin.readline()
        debugger.release()
        print("released", flush=True)
        sys.stdin.readline()
    """
    async with job(armed(code)) as running:
        port = int(await running.line())

        async def try_as_stranger() -> None:
            ports = await adapter_ports(port)
            assert 2 == len(ports)
            assert ["", ""] == [await connecting_stranger(each, "Content-Length: 2\r\n\r\n{}") for each in ports]

        await try_as_stranger()
        client = await DapClient.connect("127.0.0.1", port, within=DEADLINE)
        await client.attach({}, within=DEADLINE)
        assert await running.line() == "True"
        await try_as_stranger()
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await client.close()
        await try_as_stranger()
        running.process.stdin.write(b"\n")
        assert await running.line() == "released"
        await try_as_stranger()
        client = await DapClient.connect("127.0.0.1", port, within=DEADLINE)  # still accepts its own user
        await client.close()


@needs_second_user
async def test_other_users_cannot_report_a_false_adapter(tmp_path):
    """Another user who reports an address of the adapter first, before the adapter itself, is ignored."""
    (python := tmp_path / "python").symlink_to(sys.executable)
    code = """
        import threading
        from relay_agent.debuggee import debugpy_start
        debugpy_start.find_python = lambda: sys.argv[1]
        from relay_agent.debuggee.debugger import debugger
        print("ready", flush=True)
        sys.stdin.readline()
        print(debugger.arm(), flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
        sys.stdin.readline()
    """
    async with job(code, str(python)) as running:
        assert "ready" == await running.line()
        async with lying_stranger(python) as stranger:
            running.process.stdin.write(b"\n")
            assert b"reported\n" == await asyncio.wait_for(stranger.readline(), DEADLINE)
            async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
                await client.attach({}, within=DEADLINE)
                assert "True" == await running.line()


async def test_wait_has_an_end():
    """Without a debugger the wait ends with False when its time is over, and not before."""
    code = """
        import time
        started = time.monotonic()
        print(debugger.wait_for_attach(0.3, threading.Event()))
        taken = time.monotonic() - started
        print(0.3 <= taken < float(sys.argv[1]) or taken)
        print(debugger.wait_for_attach(0, threading.Event()))
    """
    assert await run_job(armed(code), str(DEADLINE / 30)) == (0, ["False", "True", "False"], "")


async def test_hopeless_wait_ends_at_once():
    """The wait ends as soon as it is known that nobody can come."""
    code = """
        hopeless = threading.Event()
        threading.Timer(0.2, hopeless.set).start()
        print(debugger.wait_for_attach(3600, hopeless))
    """
    assert await run_job(armed(code)) == (0, ["False"], "")


async def test_endpoints_file_of_another_debuggee_is_left_alone(tmp_path):
    """An inherited DEBUGPY_ADAPTER_ENDPOINTS names somebody else's file: it is not written, and stays set."""
    code = """
        import os
        print(os.environ["DEBUGPY_ADAPTER_ENDPOINTS"])
    """
    path = tmp_path / "endpoints.json"
    status, out, _ = await run_job(armed(code), DEBUGPY_ADAPTER_ENDPOINTS=str(path))
    assert (status, out) == (0, [str(path)])
    assert not path.exists()


async def test_threads_have_exited_after_the_end():
    """`end` returns after pydevd's threads have exited, even if that takes them some time."""
    code = """
        import pydevd, time
        exit = threading.Thread._delete
        def exit_slowly(thread):
            time.sleep(0.5)
            exit(thread)
        print(port, flush=True)
        debugger.wait_for_attach(3600, threading.Event())
        threads = list(pydevd.get_global_debugger().created_pydb_daemon_threads)
        threading.Thread._delete = exit_slowly
        debugger.end("a reason")
        print(len(threads) >= 2, [thread.name for thread in threads if thread.is_alive()])
    """
    async with (
        job(armed(code)) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({}, within=DEADLINE)
        status, out, err = await running.finish()
    assert (0, ["True []"]) == (status, out), err


async def test_arm_twice():
    """A process that is armed stays as it is: the second call returns the same port."""
    assert await run_job(armed("print(debugger.arm() == port)")) == (0, ["True"], "")


async def test_missing_debugpy():
    """The error in a job without debugpy states that it is not installed, and where to install it."""
    code = """
        sys.modules["debugpy"] = None
        from relay_agent.debuggee.debugger import debugger
        from relay_core.errors import RelayDebugError
        try:
            debugger.arm()
        except RelayDebugError as error:
            print(error)
    """
    status, out, _ = await run_job(code)
    assert status == 0
    assert out[0].startswith("debugpy is not installed in the job's Python")


async def test_shadowed_module(tmp_path):
    """The error is one line if a file of the project has the name of a module that debugpy needs."""
    (tmp_path / "code.py").touch()
    code = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        sys.modules.pop("code", None)
        from relay_agent.debuggee.debugger import debugger
        from relay_core.errors import RelayDebugError
        try:
            debugger.arm()
        except RelayDebugError as error:
            print(repr(error.sentence))
    """
    status, (line,), _ = await run_job(code)
    assert status == 0
    assert "debugpy did not start: " in line
    assert f"shadowed by: {tmp_path / 'code.py'} Please rename" in line


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring costs nothing there")
async def test_release_gives_the_speed_back():
    """After `release` neither this thread nor a new one is traced."""
    code = """
        print(sys.gettrace() is None)
        debugger.release()
        print(sys.gettrace() is None)
        thread = threading.Thread(target=lambda: print(sys.gettrace() is None))
        thread.start()
        thread.join()
    """
    assert await run_job(armed(code)) == (0, ["False", "True", "True"], "")


@pytest.mark.parametrize(("chosen", "found"), [(True, True), (False, False)])
async def test_foreign_port(chosen, found):
    """The port of the job's own `debugpy.listen` is found if the job has chosen it."""
    port = free_port()
    code = """
        import debugpy
        from relay_agent.debuggee.debugger import debugger
        from relay_agent.debuggee.debugpy_start import find_adapter_port
        print(debugger.is_armed(), find_adapter_port())
        debugpy.listen(int(sys.argv[1]))
        print(debugger.is_armed(), find_adapter_port(), debugger.is_attached())
        debugger.release()
        print(debugger.is_armed())
    """
    status, out, _ = await run_job(code, str(port if chosen else 0), PYDEVD_DISABLE_FILE_VALIDATION="1")
    assert status == 0
    assert out == ["False None", f"True {port if found else None} False", "True"]


async def test_step_latency_on_one_machine():
    """A debugger on the same machine gets answers in less than Nagle's 40 ms."""
    async with job(armed("print(port, flush=True); sys.stdin.readline()")) as running:
        client = await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE)
        await client.attach({}, within=DEADLINE)
        async with timeout(DEADLINE):  # a busy machine may need several rounds
            while await _median_latency(client) > 0.03:
                pass
        await client.close()
        await running.finish()


async def _median_latency(client: DapClient) -> float:
    """Return the seconds that the middle one of several requests has taken."""
    loop, taken = asyncio.get_running_loop(), []
    for _ in range(11):
        started = loop.time()
        await client.request("threads", within=DEADLINE)
        taken.append(loop.time() - started)
    return sorted(taken)[5]


async def test_listening_editor_is_dialled_and_leaves_nothing_behind(tmp_path):
    """`connect` returns before breakpoints are there; after the editor has left, the process is as fast as before."""
    code = """
        import pathlib, runpy, sys, threading
        from relay_agent.debuggee.debugger import debugger
        for port in map(int, sys.stdin):
            debugger.connect(port)
            print(debugger.is_armed(), flush=True)
            runpy.run_path(sys.argv[1])
            debugger.release()
            print(debugger.is_armed(), debugger.is_attached(), sys.gettrace(), threading.gettrace(), flush=True)
        print(debugger.arm() > 0, debugger.is_armed(), flush=True)
    """
    script, port = tmp_path / "loop.py", free_port()
    script.write_text("import time\ngo_on = False\nwhile not go_on:\n    time.sleep(0.01)\n")
    async with job(code, str(script)) as running:
        for _ in range(2):
            async with listening_editor(port, script, 4) as editor:
                running.process.stdin.write(f"{port}\n".encode())
                assert await running.line() == "True"
                await editor.until_stopped()
                assert await editor.value("globals().update(go_on=True)") == "None"
                await editor.leave()
            assert await running.line() == "False False None None"
        running.process.stdin.close()
        assert await running.line() == "True True"


async def test_attached_means_that_breakpoints_are_hit(tmp_path):
    """An editor may have sent all its breakpoints before this process looks at them; it is not attached until then."""
    code = """
        import threading, time
        from relay_agent.debuggee.debugger import debugger
        import debugpy.server.api, pydevd
        enable, seen = pydevd.PyDB.enable_tracing, []

        def enable_late(pydb, *arguments, **named):
            while threading.current_thread() is threading.main_thread() and not pydb.is_attached():
                time.sleep(0.01)
            seen.append(debugger.is_attached())
            enable(pydb, *arguments, **named)

        pydevd.PyDB.enable_tracing = enable_late
        debugger.connect(int(sys.stdin.readline()))
        print(seen[0], debugger.is_attached(), flush=True)
        sys.stdin.readline()
    """
    script, port = tmp_path / "script.py", free_port()
    script.write_text("a_line = 1\n")
    async with job(code) as running, listening_editor(port, script, 1):
        running.process.stdin.write(f"{port}\n".encode())
        assert await running.line() == "False True"


async def test_stranger_in_the_editors_place():
    """A program that listens there and is not a debug adapter does no harm: it hangs up, and debuggers can come."""
    code = """
        import sys, threading
        from relay_agent.debuggee.debugger import debugger
        debugger.connect(int(sys.stdin.readline()))
        print(debugger.is_attached(), flush=True)
        sys.stdin.readline()
        debugger.release()
        print(debugger.is_armed(), sys.gettrace(), debugger.arm() > 0)
    """
    gone = asyncio.Event()

    async def stranger(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    async with local_server(stranger) as (port, _), job(code) as running:
        running.process.stdin.write(f"{port}\n".encode())
        assert await running.line() == "False"
        gone.set()
        assert (await running.finish())[:2] == (0, ["False None True"])
