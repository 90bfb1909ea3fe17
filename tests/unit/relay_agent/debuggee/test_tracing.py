"""Facts about tracing that is switched off and on again while a thread runs no Python code."""

from pathlib import Path

from relay_client.dap.client import DapClient
from tests.support.deadline import DEADLINE
from tests.support.jobs import job

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
