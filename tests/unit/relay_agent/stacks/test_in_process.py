"""Facts about what a process reports of its own threads."""

import json
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest

from relay_agent.stacks import capture, in_process
from relay_core.agent_api.stacks import ThreadStack
from relay_core.records import encode, parse
from tests.support.jobs.processes import run_job
from tests.support.machine.deadline import DEADLINE

OURS = Path(in_process.__file__).parent.parent


@pytest.fixture
def parked():
    """A thread called "parked", which waits in `waiting_room`."""
    arrived, leave = threading.Event(), threading.Event()

    def waiting_room(number, label):
        arrived.set()
        leave.wait(DEADLINE)

    thread = threading.Thread(target=waiting_room, args=(7, "blue"), name="parked")
    thread.start()
    arrived.wait(DEADLINE)
    yield thread
    leave.set()
    thread.join()


def in_helper(**options):
    """Return the result of `collect` in a thread of its own, as in a job."""
    found = []
    thread = threading.Thread(target=lambda: found.append(in_process.collect(**options)), name="asks")
    thread.start()
    thread.join()
    return found[0]


def frame_of(threads, function):
    return next(frame for thread in threads for frame in thread.frames if frame.function == function)


def test_all_threads_are_reported(parked):
    """The main thread comes first; each has name, ident and frames, the innermost last; the asking one is left out."""
    threads = in_helper()
    main, other = threads[0], next(thread for thread in threads if thread.name == "parked")
    assert (main.name, main.main, main.ident) == ("MainThread", True, threading.main_thread().ident)
    assert (other.main, other.ident) == (False, parked.ident)
    functions = [frame.function for frame in other.frames]
    assert functions.index("_bootstrap") < functions.index("waiting_room") < functions.index("wait")
    frame = frame_of(threads, "waiting_room")
    assert (frame.file, dict(frame.locals)) == (__file__, {})
    assert "asks" not in [thread.name for thread in threads]
    assert [parse(ThreadStack, json.loads(json.dumps(encode(thread)))) for thread in threads] == threads


def test_deep_stack_keeps_its_inner_frames():
    """Of a deep recursion the innermost frames are reported, as many as faulthandler shows."""

    def dive(depth):
        return dive(depth - 1) if depth else in_helper()

    frames = dive(300)[0].frames
    assert len(frames) == in_process.MAX_FRAMES
    assert frames[0].function == "dive"
    assert frames[-1].function in {"start", "wait", "join", "_wait_for_tstate_lock"}


@pytest.mark.parametrize(
    ("files", "helper"),
    [
        (["/usr/lib/python3.11/threading.py", f"{OURS}/member.py", "/x/job.py"], True),
        (["/x/threading.py", "/x/debugpy/_vendored/pydevd/pydevd.py"], True),
        ([f"{OURS}/node/members.py"], True),
        (["/x/threading.py", "/x/train.py", f"{OURS}/job.py"], False),
        (["/x/threading.py"], False),
        (["/x/debugpy/_vendored/pydevd/_pydev_bundle/pydev_monkey.py", "/x/threading.py", "/x/train.py"], False),
        ([], False),
    ],
)
def test_helper_threads(files, helper):
    """A thread is a helper if the first function it ran, after threading's own, is relay-agent's or debugpy's."""
    assert in_process.is_helper(files) == helper


def test_helper_threads_are_left_out(monkeypatch, parked):
    """`collect` leaves helpers out, but never the main thread."""
    monkeypatch.setattr(in_process, "is_helper", lambda _files: True)
    assert [thread.name for thread in in_helper()] == ["MainThread"]


def test_variables_are_captured(monkeypatch, parked):
    """With `locals` each frame has its variables as text."""
    monkeypatch.setattr(capture, "BUDGET", DEADLINE)  # the frames of the test runner come first
    assert frame_of(in_helper(locals=True), "waiting_room").locals["number"] == "7"
    assert frame_of(in_helper(locals=True), "waiting_room").locals["label"] == "'blue'"
    assert frame_of(in_helper(), "waiting_room").locals == {}


async def test_signal_is_free(tmp_path):
    """The signal for dumps is a real-time signal that nobody catches, ignores or blocks; the file is private."""
    code = f"""
        import signal
        from pathlib import Path
        from relay_agent.stacks import in_process
        first = signal.SIGRTMIN + in_process._FIRST_SIGNAL
        mine = lambda *_: print("mine")
        signal.signal(first, mine)
        signal.signal(first + 1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [first + 2])
        print(in_process.register_dump(Path({str(tmp_path / "dump")!r})) - first, signal.getsignal(first) is mine)
    """
    assert await run_job(code) == (0, ["3 True"], "")
    assert stat.S_IMODE((tmp_path / "dump").stat().st_mode) == 0o600


async def test_signal_writes_the_dump(tmp_path):
    """The signal writes the stacks of all threads behind the header, again and again, and later into the next file."""
    code = f"""
        import json, os, threading
        from pathlib import Path
        from relay_agent.stacks import in_process
        one, two = Path({str(tmp_path / "one")!r}), Path({str(tmp_path / "two")!r})
        number = in_process.register_dump(one)
        header = json.loads(one.read_text())
        print(header["pid"] == os.getpid(), header["main"] == threading.main_thread().ident)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        print(one.read_text().count("(most recent call first)"))
        print(in_process.register_dump(two) == number)
        os.kill(os.getpid(), number)
        print(one.read_text().count("(most recent call first)"), two.read_text().count("(most recent call first)"))
    """
    assert await run_job(code) == (0, ["True True", "2", "True", "2 1"], "")


async def test_file_of_the_job_under_the_old_number_is_left_alone(tmp_path):
    """A job that closes all descriptors and opens its own file in that place keeps it open."""
    code = f"""
        import json, os
        from pathlib import Path
        from relay_agent.stacks import in_process
        path = Path({str(tmp_path / "dump")!r})
        in_process.register_dump(path)
        number = json.loads(path.read_text())["descriptor"]
        os.dup2(os.open({str(tmp_path / "checkpoint")!r}, os.O_WRONLY | os.O_CREAT), number)
        in_process.register_dump(path)
        print(os.write(number, b"weights"))
    """
    assert await run_job(code) == (0, ["7"], "")


async def test_new_file_that_gets_the_old_number(tmp_path):
    """If the job has closed the old descriptor, the next one may have its number, and stays open."""
    code = f"""
        import json, os
        from pathlib import Path
        from relay_agent.stacks import in_process
        path = Path({str(tmp_path / "dump")!r})
        signal = in_process.register_dump(path)
        number = json.loads(path.read_text())["descriptor"]
        os.close(number)
        print(in_process.register_dump(path) == signal, json.loads(path.read_text())["descriptor"] == number)
        print(os.path.samestat(os.fstat(number), path.stat()))
    """
    assert await run_job(code) == (0, ["True True", "True"], "")


async def test_forked_child_has_its_own_file(tmp_path):
    """A forked child registers a file of its own, and the parent's stays the parent's."""
    code = f"""
        import json, os
        from pathlib import Path
        from relay_agent.stacks import in_process
        one, two = Path({str(tmp_path / "one")!r}), Path({str(tmp_path / "two")!r})
        number = in_process.register_dump(one)
        if not (child := os.fork()):
            in_process.register_dump(two)
            os.kill(os.getpid(), number)
            os._exit(0)
        os.waitpid(child, 0)
        print(len(one.read_text().splitlines()), json.loads(two.read_text().splitlines()[0])["pid"] == child)
        os.kill(os.getpid(), number)
        print(len(one.read_text().splitlines()) > 1)
    """
    assert await run_job(code) == (0, ["1 True", "True"], "")


async def test_signal_that_the_job_takes(tmp_path):
    """A handler that the job sets later is the only one, and its file is closed; the next file gets another signal."""
    code = f"""
        import json, os, signal
        from pathlib import Path
        from relay_agent.stacks import in_process
        path = Path({str(tmp_path / "dump")!r})
        number = in_process.register_dump(path)
        try:
            signal.signal(number, None)
        except TypeError as error:
            print("as ever:", error)
        number = in_process.register_dump(path)
        print(signal.signal(number, lambda *_: print("the job's")) is signal.SIG_DFL)
        os.kill(os.getpid(), number)
        descriptor = json.loads(path.read_text())["descriptor"]
        print(os.path.exists(f"/proc/self/fd/{{descriptor}}"), len(path.read_text().splitlines()))
        print(in_process.register_dump(path) > number)
    """
    status, lines, error = await run_job(code)
    assert (status, lines[1:], error) == (0, ["True", "the job's", "False 1", "True"], "")
    assert lines[0].startswith("as ever: signal handler must be")


async def test_signal_that_the_job_takes_meanwhile(tmp_path):
    """A handler that the job sets after the signal was found free, and before it is registered, is the job's again."""
    code = f"""
        import os, signal
        from pathlib import Path
        from relay_agent.stacks import in_process
        found = in_process._find_free_signal()
        signal.signal(found, lambda *_: print("the job's"))
        in_process._find_free_signal = lambda: found
        print(in_process.register_dump(Path({str(tmp_path / "dump")!r})))
        os.kill(os.getpid(), found)
    """
    assert await run_job(code) == (0, ["None", "the job's"], "")


def test_no_signal_where_there_is_no_proc(monkeypatch):
    """Where free signals cannot be determined, none is registered."""
    monkeypatch.delattr(signal, "SIGRTMIN")
    assert in_process.register_dump("unused") is None


async def test_light_to_import():
    """A job that is not asked imports neither asyncio nor what describes values."""
    code = """
        from relay_agent.stacks import in_process
        print([name for name in ("asyncio", "debugpy", "relay_agent.stacks.capture") if name in sys.modules])
    """
    assert await run_job(code) == (0, ["[]"], "")


def test_frame_of_the_program():
    """The debugger stops in the innermost frame outside of libraries, where `justMyCode` shows it."""
    frames = []
    json.dumps(object(), default=lambda _: frames.append(sys._getframe(1)))
    assert frames[0].f_code.co_filename.endswith("encoder.py")
    assert "test_frame_of_the_program" == in_process.program_frame(frames[0]).f_code.co_name


def frame_in(file, **names):
    """Return the frame of a function whose code has this file name, called by this function's caller."""
    names["sys"] = sys
    exec(compile("def inner():\n    return sys._getframe()", file, "exec"), names)
    return names["inner"]()


def test_frame_of_typed_code():
    """What was typed, or given to `exec` with variables of its own, is the program's; generated methods are not."""
    for file in ("<string>", "<stdin>", "<python-input-3>", "<ipython-input-3-0f1e>"):
        typed = frame_in(file)
        assert typed is in_process.program_frame(typed)
    for generated in (frame_in("<string>", __name__="job.config"), frame_in("<attrs generated init>")):
        assert "frame_in" == in_process.program_frame(generated).f_code.co_name
