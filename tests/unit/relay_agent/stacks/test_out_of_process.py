"""Facts about asking a process for its stacks: real processes that hang, and that are not what they were."""

import asyncio
import json
import os
import shutil
import signal
import textwrap
from pathlib import Path

import psutil
import pytest

from relay_agent.stacks import out_of_process
from relay_agent.stacks.out_of_process import Dump, parse_dump, stacks_from_outside
from relay_core.agent_api.stacks import HELPER_THREAD, Frame, ProcessStacks, ThreadStack
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.records import parse
from tests.support.jobs.processes import gone, job, suspend
from tests.support.machine.deadline import DEADLINE

MEMBER = """
import json, threading, time
from pathlib import Path
from relay_agent.stacks import in_process
from relay_core.records import encode

def answer():
    for number in sys.stdin:
        print(json.dumps([int(number), [encode(thread) for thread in in_process.collect()]]), flush=True)

number = in_process.register_dump(Path(sys.argv[1]))
threading.Thread(target=answer, daemon=True).start()
print(number, flush=True)
"""
HANGS = {
    "deadlocked": "lock = threading.Lock()\nlock.acquire()\ndef hang():\n    lock.acquire()",
    "sleeping in C": "import ctypes\ndef hang():\n    ctypes.CDLL(None).sleep(3600)",
    "sleeping in C with the GIL": "import ctypes\ndef hang():\n    while True: ctypes.PyDLL(None).sleep(3600)",
    "busy in C with the GIL": "import itertools\ndef hang():\n    sum(itertools.repeat(1, 10**12))",
}


class Asked:
    """A process that plays a member, and how it is asked."""

    def __init__(self, running, path, number):
        self.running = running
        self.pid = running.pid
        self.dump = Dump(path, number)
        self._asked = 0

    @classmethod
    async def of(cls, running, path):
        return cls(running, path, int(await running.line()))

    async def ask(self):
        """Ask the helper thread; an answer to an earlier request that was given up is passed over."""
        self._asked += 1
        mine = self._asked
        self.running.process.stdin.write(b"%d\n" % mine)
        while True:
            number, threads = json.loads(await self.running.line())
            if number == mine:
                return [parse(ThreadStack, thread) for thread in threads]

    async def stacks(self, *, dump=True, **options):
        return await stacks_of(self.pid, self.ask, self.dump if dump else None, **options)


async def stacks_of(pid, ask, dump, budget=1.0, **options):
    """Ask the helper thread for so many seconds and then, as an agent does, from outside."""
    try:
        async with timeout(budget):
            return ProcessStacks(HELPER_THREAD, tuple(await ask()))
    except TIMEOUT_ERRORS:
        reason = f"its helper thread did not answer within {budget:g} s"
    except out_of_process.RelayDebugError as error:
        reason = error.sentence
    return await stacks_from_outside(pid, reason, dump, **options)


def member(directory, code):
    return job(MEMBER + textwrap.dedent(code), str(directory / "dump"))


async def silent():
    """Play a helper thread that does not answer."""
    await asyncio.Event().wait()


async def until_it_hangs(asked, how, count=1, **options):
    """Ask until the process has come to where that many of its threads hang, and this rung answers."""
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while True:
        found = await asked.stacks(**options)
        functions = [thread.frames[-1].function for thread in found.threads if thread.frames]
        if (found.how == how and functions.count("hang") == count) or asyncio.get_running_loop().time() > deadline:
            return found


@pytest.fixture
def no_py_spy(monkeypatch):
    monkeypatch.setattr(out_of_process.shutil, "which", lambda *_args, **_options: None)


@pytest.mark.parametrize(
    ("hang", "how"),
    [
        ("deadlocked", "helper thread"),
        ("sleeping in C", "helper thread"),
        ("sleeping in C with the GIL", "faulthandler"),
        ("busy in C with the GIL", "faulthandler"),
    ],
)
async def test_hung_process(tmp_path, hang, how):
    """A process that hangs shows the line where it hangs, whoever holds the GIL; the answer names who has seen it."""
    code = HANGS[hang]
    async with member(tmp_path, f"{code}\nhang()") as running:
        asked = await Asked.of(running, tmp_path / "dump")
        found = await until_it_hangs(asked, how, budget=0.3)
        main = found.threads[0]
        assert (found.how, main.name, main.main) == (how, "MainThread", True)
        assert [frame.function for frame in main.frames] == ["<module>", "hang"]
        script = (MEMBER + code).splitlines()
        inner = main.frames[-1]
        assert (inner.file, script[inner.line - 2].strip()) == ("<string>", script[-1].strip())
        assert (await asked.stacks(budget=0.3)).threads[0] == main
        assert running.process.returncode is None


async def test_all_threads_by_signal(tmp_path):
    """Faulthandler's answer has all threads of the process."""
    code = """
        lock = threading.Lock()
        lock.acquire()
        def hang():
            lock.acquire()
        for _ in range(3):
            threading.Thread(target=hang, daemon=True).start()
        hang()
    """
    async with member(tmp_path, code) as running:
        asked = await Asked.of(running, tmp_path / "dump")
        await until_it_hangs(asked, "helper thread", count=4)
        asking = (stacks_of(asked.pid, silent, asked.dump, budget=0) for _ in range(3))
        answers = await asyncio.gather(*asking)
        assert [found.how for found in answers] == ["faulthandler"] * 3
        assert [len(found.threads) for found in answers] == [5] * 3
        hanging = [
            [thread for thread in found.threads if thread.frames[-1].function == "hang"] for found in answers
        ]  # not the one that has just answered the first question
        assert len(hanging[0]) == 4
        assert hanging == [hanging[0]] * 3


@pytest.mark.parametrize("program", ["sleep", "catches the same signal"])
async def test_process_that_has_become_another_program(tmp_path, no_py_spy, program):
    """After exec no signal is sent: it would end the one program, and mean something else to the other."""
    code = """
        import os
        if sys.argv[2] == "sleep":
            os.execvp("sleep", ["sleep", "60"])
        other = "import signal, sys; signal.signal(int(sys.argv[1]), lambda *_: sys.exit(9)); print('other'); input()"
        os.execv(sys.executable, [sys.executable, "-uc", other, str(number)])
    """
    arguments = (str(tmp_path / "dump"), program)
    async with job(MEMBER + textwrap.dedent(code), *arguments) as running:
        asked = await Asked.of(running, tmp_path / "dump")
        if program == "sleep":
            while psutil.Process(asked.pid).name() != "sleep":
                await asyncio.sleep(0.01)
        else:
            assert await running.line() == "other"
        found = await stacks_of(asked.pid, silent, asked.dump, budget=0.05)
        assert (found.how, found.threads) == ("none", ())
        assert found.error == (
            "its helper thread did not answer within 0.05 s; it no longer handles the signal for stack dumps (its "
            "program uses the signal, or it was replaced by exec or is exiting); py-spy is not installed"
        )
        if program != "sleep":
            assert await running.finish() == (0, [], "")
        assert running.process.returncode in {None, 0}


async def test_forked_child_is_not_its_parent(tmp_path, no_py_spy):
    """A child that has inherited the signal and the file is not asked in its parent's place."""
    code = """
        import os
        if not (child := os.fork()):
            time.sleep(3600)
        print(child, flush=True)
        sys.stdin.read()
        os.kill(child, 9)
    """
    async with job(MEMBER.replace("threading.Thread", "#") + textwrap.dedent(code), str(tmp_path / "dump")) as running:
        asked = await Asked.of(running, tmp_path / "dump")
        child = int(await running.line())
        found = await stacks_of(child, silent, asked.dump, budget=0)
        assert found.how == "none"
        assert "no longer handles the signal for stack dumps" in found.error
        assert (await stacks_of(asked.pid, silent, asked.dump, budget=0)).how == "faulthandler"
        assert (await running.finish())[0] == 0
        assert await gone(child)


@pytest.mark.parametrize(
    "take",
    [
        "for each in range(1, signal.NSIG):\n    with contextlib.suppress(OSError):\n        signal.signal(each, end)",
        "signal.signal(number, end)",
        "imported(number, end)",
        "signal.signal(number, signal.SIG_DFL)",
    ],
    ids=["all", "one", "with a function imported earlier", "default"],
)
async def test_signal_that_the_job_has_taken(tmp_path, no_py_spy, take):
    """A signal for which the job has set a handler is not sent, and the job continues."""
    first = "import contextlib, signal, sys\nfrom signal import signal as imported\n"
    code = f"def end(*_):\n    sys.exit(9)\n{take}\nprint('taken', flush=True)\ntime.sleep(3600)"
    async with job(first + MEMBER + code, str(tmp_path / "dump")) as running:
        asked = await Asked.of(running, tmp_path / "dump")
        assert await running.line() == "taken"
        found = await stacks_of(asked.pid, silent, asked.dump, budget=0)
        assert (found.how, "its program uses the signal" in found.error) == ("none", True)
        assert (await asked.stacks(dump=False, budget=DEADLINE)).how == "helper thread"
        assert running.process.returncode is None


async def test_stopped_process(tmp_path, no_py_spy, monkeypatch):
    """A stopped process is named so; a dump that it writes too late is not taken for the next one."""
    monkeypatch.setattr(out_of_process, "DUMP_TIMEOUT", 0.1)
    async with member(tmp_path, "sys.setswitchinterval(1)\nthreading.Event().wait()") as running:
        asked = await Asked.of(running, tmp_path / "dump")
        await suspend(asked.pid)
        found = await stacks_of(asked.pid, silent, asked.dump, budget=0)
        reason = "it is stopped by a signal; to resume it, run 'kill -CONT PID' on its node"
        assert found == ProcessStacks(error=reason)
        header = asked.dump.path.stat().st_size
        os.kill(asked.pid, signal.SIGCONT)
        while asked.dump.path.stat().st_size == header:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(out_of_process, "DUMP_TIMEOUT", DEADLINE)
        found = await stacks_of(asked.pid, silent, asked.dump, budget=0)
        assert found.how == "faulthandler"
        assert [thread.main for thread in found.threads].count(True) == 1


async def test_process_that_has_ended(tmp_path, no_py_spy):
    """A process that is gone is reported as ended."""
    async with member(tmp_path, "") as running:
        asked = await Asked.of(running, tmp_path / "dump")
        await running.finish()
        found = await stacks_of(asked.pid, silent, asked.dump, budget=0)
        assert found == ProcessStacks(error="it has exited")


async def test_helper_thread_that_refuses(tmp_path, no_py_spy):
    """An error of the helper thread, and a file of the dump that is gone or no dump, are reasons and no crash."""

    async def refuse():
        raise out_of_process.RelayDebugError("this process does not support the request")

    path = tmp_path / "dump"
    for text, reason in [(None, "No such file"), ("", "Expecting value"), ("{}\n", "descriptor"), ("[]\n", "indices")]:
        if text is not None:
            path.write_text(text)
        found = await stacks_of(os.getpid(), refuse, Dump(path, signal.SIGUSR2))
        assert found.how == "none"
        assert found.error.startswith("this process does not support the request; faulthandler: ")
        assert reason in found.error


async def test_py_spy(tmp_path):
    """Where no signal is registered py-spy finds the line and the variables of a process that holds the GIL."""
    code = "import itertools\ndef hang(colour):\n    sum(itertools.repeat(1, 10**12))\nhang('blue')"
    async with member(tmp_path, code) as running:
        asked = await Asked.of(running, tmp_path / "dump")
        found = await until_it_hangs(asked, "py-spy", dump=False, budget=0.3, locals=True)
        if found.how == "none" and any(word in found.error for word in ("not installed", "ermission", "ermitted")):
            pytest.skip(found.error)
        main = found.threads[0]
        assert (found.how, main.name, main.main) == ("py-spy", "MainThread", True)
        assert [frame.function for frame in main.frames] == ["<module>", "hang"]
        assert main.frames[-1].locals == {"colour": '"blue"'}


@pytest.mark.skipif(not shutil.which("sleep"), reason="needs a program that is not Python")
async def test_py_spy_on_another_program():
    """What py-spy cannot read is a reason, in its own words."""
    process = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        found = await stacks_of(process.pid, silent, None, budget=0)
    finally:
        process.kill()
        await process.wait()
    assert found.how == "none"
    assert "it has not registered a signal for stack dumps; py-spy" in found.error


DUMP = """\
Thread 0x00007f0000000003 [loader] (most recent call first):
  File "/x/load me.py", line 5 in read
  File "/lib/python3.14/threading.py", line 982 in run

Thread 0x00007f0000000002 (most recent call first):
  File "/x/site-packages/debugpy/_vendored/pydevd/pydevd.py", line 9 in run
  File "/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f0000000004 (most recent call first):
  <no Python frame>

Current thread 0x00007f0000000001 (most recent call first):
  Garbage-collecting
  File "train.py", line ??? in step
  File "train.py", line 88 in <module>
  ...
"""


def test_parse_dump():
    """Faulthandler's text becomes threads as `collect` gives them: main first, innermost frame last, no helpers."""
    main, named, empty = parse_dump(DUMP, 0x7F0000000001)
    frames = (Frame("train.py", 88, "<module>"), Frame("train.py", 0, "step"))
    assert main == ThreadStack("MainThread", 0x7F0000000001, True, frames)
    assert (named.name, named.main, named.frames[-1].function) == ("loader", False, "read")
    assert named.frames[-1].file == "/x/load me.py"
    assert (empty.name, empty.frames) == ("thread 0x7f0000000004", ())
    assert not any(thread.main for thread in parse_dump(DUMP))
    assert parse_dump('nonsense\n  File "x", line 3 in y\n') == []


def test_dump_is_described_without_its_lock():
    """A Dump is its file and its signal."""
    assert Dump(Path("x"), 44) == Dump(Path("x"), 44)
    assert repr(Dump(Path("x"), 44)) == "Dump(path=PosixPath('x'), signal=44)"
