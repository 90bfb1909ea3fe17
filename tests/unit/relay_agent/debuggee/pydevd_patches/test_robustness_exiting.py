"""Facts about a process whose connection to debugpy's adapter breaks while pydevd starts in it."""

from pathlib import Path

from relay_client.dap import DapClient
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

PARENT = """
    import os, subprocess, threading
    os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], sys.argv[1]])
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(follow_children=True), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    process = subprocess.Popen([sys.executable, sys.argv[1] + "/child.py"])
    try:
        print("exited with", process.wait(3600), flush=True)
    except subprocess.TimeoutExpired:
        process.kill()
        print("did not exit", process.wait(), flush=True)
"""
CHILD = """
import sys
print("the child runs", flush=True)
sys.exit(7)
"""
EXTENSION = '''\
"""Extension of pydevd that ends debugpy's adapter before pydevd creates its last threads."""

import os
import sys

import psutil
from _pydevd_bundle.pydevd_extension_api import DebuggerEventHandler

MESSAGES = 1000
"""More than the writer thread can send before it notices that the connection is broken."""


class KillAdapter(DebuggerEventHandler):
    def on_debugger_modules_loaded(self, **_):
        sys.modules.pop(__name__, None)
        PyDB = sys.modules["__main__"].PyDB
        wait = PyDB.wait_for_ready_to_run

        def kill_adapter_and_wait(debugger):
            with debugger._main_lock:  # as while pydevd processes a request
                adapter = psutil.Process(owner_of(debugger.writer.sock.getpeername()[1]))
                adapter.kill()
                for _ in range(MESSAGES):
                    debugger.writer.add_command(debugger.cmd_factory.make_io_message("text", 1))
            debugger.writer.join()
            wait(debugger)

        PyDB.wait_for_ready_to_run = kill_adapter_and_wait


def owner_of(port):
    listening = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
    return next(found.pid for found in listening if found.laddr.port == port)
'''


async def test_process_exits(tmp_path: Path) -> None:
    """A child that starts under the debugger runs and exits with its own status, although messages were left unsent."""
    extensions = tmp_path / "pydevd_plugins" / "extensions"
    extensions.mkdir(parents=True)
    (extensions / "pydevd_plugin_kill_adapter.py").write_text(EXTENSION)
    (tmp_path / "child.py").write_text(CHILD)
    async with (
        job(PARENT, str(tmp_path)) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({}, within=DEADLINE)
        assert "the child runs" == await running.line()
        assert "exited with 7" == await running.line()
