"""Facts about tracing that is switched off and on again while a thread runs no Python code."""

import sys
from pathlib import Path

from relay_client.dap import DapClient
from tests.support.jobs.processes import job, run_job
from tests.support.machine.deadline import DEADLINE

CODE = """
    import queue, runpy, threading
    from relay_agent.debuggee.debugger import debugger
    gate = queue.Queue()

    class Helper(threading.Thread):  # as that of relay-agent, which a debugger does not stop
        pydev_do_not_trace = is_pydev_daemon_thread = True

        def run(self):
            for _ in range(2):
                print(debugger.arm(), flush=True)
                print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
                if sys.stdin.readline() == "go\\n":
                    gate.put(7)
                    sys.stdin.readline()
                debugger.release()

    Helper().start()
    runpy.run_path(sys.argv[1], {"gate": gate})
"""
PROGRAM = """\
number = gate.get()
square = number * number
"""


async def test_thread_that_waits_all_the_time(tmp_path: Path) -> None:
    """A thread that waits in a library from before a release until after the next attach stops at its breakpoints."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with job(CODE, str(script)) as running:
        assert running.process.stdin is not None
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert "True" == await running.line()  # a shorter attach could go unnoticed
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        running.process.stdin.write(b"\n")
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({str(script): [{"line": 2}]}, within=DEADLINE)
            assert "True" == await running.line()
            running.process.stdin.write(b"go\n")
            assert await client.wait_for_event("stopped", within=DEADLINE)
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert (0, [], "") == await running.finish()


LOOP = """
    import threading, time
    from relay_agent.debuggee.debugger import debugger
    over = []

    class Helper(threading.Thread):
        pydev_do_not_trace = is_pydev_daemon_thread = True

        def run(self):
            print(debugger.arm(), flush=True)
            print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
            sys.stdin.readline()
            import pydevd_tracing
            replace = pydevd_tracing.set_trace_to_threads
            pydevd_tracing.set_trace_to_threads = lambda *args, **names: (time.sleep(0.02), replace(*args, **names))[1]
            debugger.release()  # while the other thread runs
            over.append(True)

    def loop(number):
        while not over:
            number += 1
        print(sys.gettrace(), [frame.f_trace for frame in (sys._getframe(), sys._getframe(1))], flush=True)

    Helper().start()
    loop(0)
"""


async def test_loop_that_calls_nothing() -> None:
    """After a release, a thread that runs a loop without calls is not traced."""
    async with job(LOOP) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert "True" == await running.line()
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert (0, ["None [None, None]"], "") == await running.finish()


async def test_tool_that_loses_its_trace_functions() -> None:
    """Up to Python 3.11, the first attach names the tool that traces nothing any more; later, both work."""
    code = """
        import threading
        from relay_agent.debuggee.debugger import debugger
        class Tool:
            def trace(self, frame, event, arg):
                return None
        threading.settrace(Tool().trace)
        debugger.arm()
        debugger.release()
        debugger.arm()
    """
    status, _, errors = await run_job(code)
    line = "relay-agent: the debugger replaces __main__.Tool.trace in all threads until the job ends, because"
    assert 0 == status
    assert (1 if sys.version_info < (3, 12) else 0) == errors.count(line)
