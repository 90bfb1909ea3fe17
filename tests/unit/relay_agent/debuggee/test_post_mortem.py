"""Facts about a process that is held at its first uncaught exception: real processes, real debugpy."""

import signal
from textwrap import indent as indent_text

import pytest

from relay_client.dap import DapClient, RequestFailed
from relay_core.errors import ConnectionLost
from tests.support.jobs.processes import gone, job, run_job
from tests.support.machine.deadline import DEADLINE

HOLD = """\
import threading, time
import relay_agent
from relay_agent.debuggee import post_mortem
from relay_agent.debuggee.debugger import debugger

def hold(what):
    print(what, debugger.arm(), flush=True)
    return debugger.wait_for_attach({seconds}, threading.Event())

post_mortem.install(hold)
"""
CRASH = """\
def divide(number):
    secret = number * 2
    return secret / 0

"""


OLDER = "import debugpy; vars(debugpy).pop('trigger_exception_handler', None)\n"
"""debugpy before 1.8.22 has no such function."""


class Stop:
    """A debugger that stands somewhere because of an exception."""

    def __init__(self, client: DapClient, thread: int, frame: dict) -> None:
        self._client = client
        self._thread = thread
        self._frame = frame

    @classmethod
    async def of(cls, client: DapClient) -> "Stop":
        event = await client.wait_for_event("stopped", within=DEADLINE)
        assert event["body"]["reason"] == "exception"
        thread = event["body"]["threadId"]
        stack = await client.request("stackTrace", {"threadId": thread}, within=DEADLINE)
        return cls(client, thread, stack["stackFrames"][0])

    @property
    def place(self) -> tuple[str, int]:
        return self._frame["name"], self._frame["line"]

    async def value(self, expression: str) -> str:
        arguments = {"expression": expression, "frameId": self._frame["id"], "context": "watch"}
        return (await self._client.request("evaluate", arguments, within=DEADLINE))["result"]

    async def resume(self) -> None:
        await self._client.request("continue", {"threadId": self._thread}, within=DEADLINE)


@pytest.mark.parametrize("older", [False, True])
async def test_debugger_stands_at_the_raising_frame(older):
    """A debugger stands where the exception was raised and reads the variables there; the exit status stays."""
    code = (OLDER if older else "") + HOLD.format(seconds=3600) + CRASH
    async with job(code + "divide(21)\n") as running:
        what, port = (await running.line()).rsplit(maxsplit=1)
        assert what == "ZeroDivisionError: division by zero"
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            stop = await Stop.of(client)
            line = code.splitlines().index("    return secret / 0") + 2  # a job has one line of its own before
            assert stop.place == ("divide", line)
            assert await stop.value("secret") == "42"
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, _, err = await running.finish()
    assert status == 1
    assert err.count("ZeroDivisionError: division by zero") == 1


async def test_place_of_the_crash(tmp_path):
    """It is the innermost line of the job's own code, as long as the exception is held."""
    (tmp_path / "train.py").write_text("import json\njson.loads('{')\n")
    hold = "def hold(what):\n    print(post_mortem.crash_place())\npost_mortem.install(hold)\n"
    code = f"from relay_agent.debuggee import post_mortem\n{hold}hold('')\nsys.path.append(sys.argv[1])\nimport train"
    _, out, _ = await run_job(code, str(tmp_path))
    assert ["", "train.py:2"] == out


async def test_developer_continues():
    """When the developer continues, the process ends as it would have ended, and is not announced as running."""
    code = HOLD.format(seconds=3600) + "post_mortem.install(hold, lambda: print('running'))\n" + CRASH + "divide(21)\n"
    async with job(code) as running:
        port = (await running.line()).split()[-1]
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            await (await Stop.of(client)).resume()
            assert await gone(running.pid)
        status, out, err = await running.finish()
    assert (status, out) == (1, [])
    assert err.count("ZeroDivisionError: division by zero") == 1


async def test_debugger_that_saw_it():
    """A debugger that was attached and stops at uncaught exceptions on its own stops once."""
    code = HOLD.format(seconds=3600) + CRASH + "hold('ready')\ndivide(21)\n"
    async with job(code) as running:
        port = (await running.line()).split()[-1]
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE, exceptions=["uncaught"])
            stop = await Stop.of(client)
            assert stop.place[0] == "divide"
            await stop.resume()
            assert await gone(running.pid)
            with pytest.raises((RequestFailed, ConnectionLost)):
                await client.wait_for_event("stopped", within=0)
        assert (await running.finish())[0] == 1


async def test_debugger_that_saw_it_and_left():
    """A process whose debugger stops at the uncaught exception on its own, and detaches there, is not held again."""
    code = HOLD.format(seconds=3600) + CRASH + "hold('ready')\ndivide(21)\n"
    async with job(code) as running:
        port = (await running.line()).split()[-1]
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE, exceptions=["uncaught"])
            assert "divide" == (await Stop.of(client)).place[0]
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, out, err = await running.finish()
    assert (status, out) == (1, [])
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


RICH = "import rich.traceback; rich.traceback.install()\n"
OWN = "sys.excepthook = lambda kind, error, traceback: print('own', error)\n"


@pytest.mark.parametrize("hook", [RICH, OWN], ids=["rich", "own"])
async def test_hook_that_replaces_ours(hook):
    """If a later hook does not call the previous one, the process is held when it exits, at the frame that raised."""
    code = HOLD.format(seconds=3600) + hook + CRASH
    async with job(code + "divide(21)\n") as running:
        if hook is OWN:
            assert "own division by zero" == await running.line()
        what, port = (await running.line()).rsplit(maxsplit=1)
        assert what == "ZeroDivisionError: division by zero"
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            stop = await Stop.of(client)
            assert ("divide", "42") == (stop.place[0], await stop.value("secret"))
            await stop.resume()
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, out, _ = await running.finish()
    assert (status, out) == (1, [])


@pytest.mark.parametrize(
    "code",
    [
        "try: divide(1)\nexcept ZeroDivisionError as error: sys.last_value = error\n",
        "try: divide(1)\nexcept ZeroDivisionError as error: sys.last_value = error.with_traceback(None)\n",
    ],
    ids=["other outermost frame", "no traceback"],
)
async def test_stored_exception_that_was_caught(code):
    """An exception that a tool has caught and stored does not count as a crash."""
    main = "def main():\n" + indent_text(code, "    ") + "main()\n"
    status, out, _ = await run_job(HOLD.format(seconds=3600) + CRASH + main)
    assert (status, out) == (0, [])


TWO_THREADS = """\
for _ in range(2):
    thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()
"""


async def test_hook_of_threads_that_replaces_ours():
    """A thread is held after a later hook that does not call the previous one, once in the process."""
    hook = "threading.excepthook = lambda arguments: print('own', arguments.exc_value, flush=True)\n"
    status, out, _ = await run_job(HOLD.format(seconds=0.1) + hook + TWO_THREADS)
    assert (status, len(out), out[0], out[2]) == (0, 3, "own division by zero", "own division by zero")
    assert out[1].startswith("ZeroDivisionError: division by zero ")


async def test_thread_that_crashes():
    """An exception in a thread holds as well; the second crash of a process does not."""
    status, out, err = await run_job(HOLD.format(seconds=0.1) + TWO_THREADS + "print('end')")
    assert status == 0
    assert [line.rsplit(maxsplit=1)[0] for line in out[:-1]] == ["ZeroDivisionError: division by zero"]
    assert out[-1] == "end"
    assert err.count("ZeroDivisionError") == 2


async def test_workers_that_catch_their_exceptions():
    """`hold_on_crash` holds where an exception never becomes uncaught and passes it on, in an ordinary run at once."""
    code = (
        "import relay_agent\n"
        "@relay_agent.hold_on_crash()\n"
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


async def test_thread_with_a_debugger():
    """A debugger stands in the thread that crashed, and the others run on when it has gone."""
    code = (
        HOLD.format(seconds=30)
        + CRASH
        + ("thread = threading.Thread(target=divide, args=(21,)); thread.start(); thread.join()\nprint('end')")
    )
    async with job(code) as running:
        port = (await running.line()).split()[-1]
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, justMyCode=False, within=DEADLINE)
            assert await (await Stop.of(client)).value("secret") == "42"
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, out, err = await running.finish()
    assert (status, out) == (0, ["end"])
    assert err.count("ZeroDivisionError") == 1


WORKER = """\
import multiprocessing
import threading

import relay_agent
from relay_agent.debuggee import post_mortem
from relay_agent.debuggee.debugger import debugger

def hold(what):
    print(what, debugger.arm(), flush=True)
    return debugger.wait_for_attach(3600, threading.Event())

def work():
    post_mortem.install(hold)
    divide(21)

@relay_agent.hold_on_crash()
def divide(number):
    return number / 0

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    print(worker.exitcode)
"""


async def test_worker_of_multiprocessing(tmp_path):
    """A worker whose exceptions multiprocessing catches is held where it asks for that, and then ends as ever."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    async with job(code, str(script)) as running:
        port = (await running.line()).split()[-1]
        async with await DapClient.connect("127.0.0.1", int(port), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            stop = await Stop.of(client)
            assert (stop.place[0], await stop.value("number")) == ("divide", "21")
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        status, out, err = await running.finish()
    assert (status, out) == (0, ["1"])
    assert err.count("ZeroDivisionError: division by zero") == 1


async def test_forked_child_is_not_held():
    """A forked child that crashes ends at once: its parent's agent knows nothing of it."""
    code = "import os\nif os.fork() == 0:\n    divide(1)\nprint(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)\n"
    status, out, err = await run_job(HOLD.format(seconds=30) + CRASH + code)
    assert (status, out) == (0, ["1"])
    assert err.count("ZeroDivisionError") == 1


async def test_interrupted_hold():
    """Ctrl-C ends the hold and nothing else: the crash is reported, with its own exit status."""
    code = "print('ready', flush=True)\ndivide(1)\n"
    async with job(HOLD.format(seconds=3600) + CRASH + code) as running:
        assert await running.line() == "ready"
        await running.line()
        running.process.send_signal(signal.SIGINT)
        status, _, err = await running.finish()
    assert status == 1
    assert err.splitlines()[-2:] == [
        "ZeroDivisionError: division by zero",
        "relay-agent: the hold was interrupted; exiting",
    ]


async def test_interrupted_hold_of_an_exception_that_is_caught():
    """Ctrl-C ends the hold, and the process continues."""
    code = "try:\n    with relay_agent.hold_on_crash(): divide(1)\nexcept ZeroDivisionError: print('caught')\n"
    async with job(HOLD.format(seconds=3600) + CRASH + code) as running:
        await running.line()
        running.process.send_signal(signal.SIGINT)
        status, out, err = await running.finish()
    assert (status, out) == (0, ["caught"])
    assert err == "relay-agent: the hold was interrupted\n"


THREAD = "threading.Thread(target=over.wait).start()\n"


@pytest.mark.parametrize(
    ("code", "is_announced"),
    [
        ("divide(1)\n", False),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\ndivide(1)\n", False),
        (THREAD + "divide(1)\n", True),
        ("threading.Thread(target=divide, args=(1,)).start()\n", True),
        ("with relay_agent.hold_on_crash(): divide(1)\n", True),
    ],
    ids=["the only thread", "daemon thread", "other thread", "crashed thread", "caught"],
)
async def test_the_end_of_the_hold(code, is_announced):
    """The process is announced as running after the hold only if it does not exit at once."""
    install = (
        "over = threading.Event()\npost_mortem.install(lambda what: False, lambda: (print('running'), over.set()))\n"
    )
    begin = HOLD.format(seconds=0).replace("post_mortem.install(hold)\n", install)
    assert (await run_job(begin + CRASH + code))[1] == ["running"] * is_announced


async def test_hold_that_fails():
    """A hold that cannot begin is reported in one line, and the crash takes its course."""
    code = """
        from relay_agent.debuggee import post_mortem
        post_mortem.install(lambda what: 1 + what)
        raise ValueError("x")
    """
    status, _, err = await run_job(code)
    assert status == 1
    assert err.splitlines()[-2] == "ValueError: x"
    assert err.splitlines()[-1].startswith("relay-agent: the hold ended: TypeError: ")


COLLECTS = """
import io, sys
def wrap(old_hook, excepthook_prefix):
    def _distributed_excepthook(*args):  # as in torch.distributed.distributed_c10d
        old_stderr = sys.stderr
        sys.stderr = buf = io.StringIO()
        try:
            old_hook(*args)
        finally:
            sys.stderr = old_stderr
        sys.stderr.write("".join(f"{excepthook_prefix}: {s}" for s in buf.getvalue().splitlines(True)))
    return _distributed_excepthook
"""


@pytest.mark.parametrize("is_outer", [True, False])
async def test_hook_of_torch(is_outer):
    """The traceback that torch's hook collects is printed before the hold, once and with the rank."""
    hold = HOLD.format(seconds=0.1) + "def hold(what): print(what, file=sys.__stderr__)\n"
    hold = COLLECTS + hold.replace("post_mortem.install(hold)\n", "") + "install = lambda: post_mortem.install(hold)\n"
    wrapping = "sys.excepthook = wrap(sys.excepthook, '[rank1]')\n"
    order = "install()\n" + wrapping if is_outer else wrapping + "install()\n"
    _, _, err = await run_job(hold + order + "raise ValueError('odd')")
    assert err.splitlines()[0] == "[rank1]: Traceback (most recent call last):"
    assert err.splitlines()[-2:] == ["[rank1]: ValueError: odd", "ValueError: odd"]
