"""Facts about programs that are started without becoming children."""

import ctypes
import json
import os
import signal
import sys

import pytest

from relay_agent.node.in_job.detached import FIRST_NUMBER, Report, start_detached
from tests.support.jobs.processes import run_job
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import HC, local_relay

LOOK = """
import json, os, sys
line = json.dumps([os.getppid(), os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd"))[:-1],
                   os.environ.get("MARK"), [os.path.realpath(f"/proc/self/fd/{n}") for n in (0, 1)]])
os.write(int(sys.argv[1]), line.encode() + b"\\n")
"""

LIBRARY = ctypes.CDLL(None)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a program is started as a child")


def test_what_a_program_gets():
    """It is not a child, leads a session, and has only the given environment and descriptors, at the given numbers."""
    unrelated = os.dup(0)
    os.set_inheritable(unrelated, True)
    try:
        with Report() as report, Report() as other:
            command = (sys.executable, "-c", LOOK, str(FIRST_NUMBER + 1))
            assert start_detached(command, {"MARK": "yes"}, (other.writing, report.writing))
            parent, leads, descriptors, mark, streams = json.loads(report.read(DEADLINE))
    finally:
        os.close(unrelated)
    assert os.getpid() != parent
    assert (True, ["0", "1", "2", "3", "4"], "yes") == (leads, descriptors, mark)
    assert ["/dev/null", "/dev/null"] == streams


def test_program_that_does_not_exist():
    """Nothing is started, and the result shows that; an ordinary start then shows the reason."""
    assert not start_detached(("/nonexistent/python",), {}, ())


def test_program_that_exits():
    """A program that exits without a report is noticed when it exits."""
    with Report() as report:
        assert start_detached((sys.executable, "-c", ""), {}, (report.writing,))
        with pytest.raises(EOFError):
            report.read(DEADLINE)


def test_signal_mask_is_kept():
    """The calling thread has the same signal mask as before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    start_detached((sys.executable, "-c", ""), {}, ())
    assert before == signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2)])
async def test_job_without_standard_streams(tmp_path, closed):
    """A pipe with the number of a closed standard stream gets to the program, whose own streams are the null device."""
    code = f"""
        import os, sys
        from relay_agent.node.in_job.detached import FIRST_NUMBER, Report, start_detached
        out = os.dup(1)
        for number in {closed!r}:
            os.close(number)
        look = "import os; os.write(3, os.path.realpath('/proc/self/fd/0').encode() + bytes([10]))"
        with Report() as report:
            started = start_detached((sys.executable, "-c", look), {{}}, (report.writing,))
            line = report.read(60)
        os.write(out, b"%d %s" % (started, line))
        os._exit(0)
    """
    status, out, err = await run_job(code)
    assert (0, ["1 /dev/null"]) == (status, out), err


def test_older_c_library(monkeypatch):
    """Without `closefrom`, a program has no other descriptors either."""

    class Older:
        def __init__(self, name: None) -> None:
            self._library = LIBRARY

        def __getattr__(self, name: str) -> object:
            if "closefrom" in name:
                raise AttributeError
            return self._library[name]

        __getitem__ = __getattr__

    monkeypatch.setattr(ctypes, "CDLL", Older)
    test_what_a_program_gets()


async def test_job_never_meets_a_child(tmp_path):
    """Neither the agent, nor its successor after a SIGKILL, nor a debugger cause a SIGCHLD or a child to wait for."""
    code = """
        import os, signal, sys, time
        from relay_agent.node.in_job.client import NodeClient
        from relay_agent.settings.model import DebugSettings
        signals = []
        signal.signal(signal.SIGCHLD, lambda *_: signals.append("SIGCHLD"))
        target = {"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}
        client = NodeClient({"hc": sys.argv[1]}, target, DebugSettings(), answers={})
        client.start()
        print(client.attaching.listening.wait(3600))
        killed = client.agent_pid
        os.kill(killed, signal.SIGKILL)
        while client.agent_pid == killed or not client.is_connected:
            time.sleep(0.01)
        from relay_agent.debuggee.debugger import debugger
        print(debugger.arm() > 0)
        try:
            print(os.wait())
        except ChildProcessError:
            print("no child", signals)
    """
    async with local_relay(tmp_path) as relay:
        status, out, err = await run_job(code, HC, **access(relay, tmp_path, "listen"))
    assert (0, ["True", "True", "no child []"]) == (status, out), err


SUBREAPER = """
    import ctypes, os, sys
    from relay_agent.node.in_job.detached import Report, start_detached
    library, flag = ctypes.CDLL(None), ctypes.c_int(0)
    library.prctl(36, 1, 0, 0, 0)
    code = "import os; os.write(3, b'%d' % os.getppid() + bytes([10]))"
    with Report() as report:
        start_detached((sys.executable, "-c", code), {}, (report.writing,))
        print(int(report.read(60)) == os.getpid())
    try:
        print(os.waitpid(-1, 0))
    except ChildProcessError:
        print("no child")
    library.prctl(37, ctypes.byref(flag), 0, 0, 0)
    print(flag.value)
"""


async def test_job_that_is_a_subreaper():
    """It does not become the parent of the program, and is a subreaper again later."""
    assert (0, ["False", "no child", "1"], "") == await run_job(SUBREAPER)
