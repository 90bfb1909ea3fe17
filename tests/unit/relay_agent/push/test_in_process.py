"""Facts about the phases of a push in a process; they run in a process of their own, which has a main thread."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.machine.deadline import DEADLINE

PRELUDE = """
import json, linecache, queue, sys, threading, time
sys.path.insert(0, {folder!r})
import model
from relay_agent.push.in_process import start_phase
from relay_core.agent_api.push import Phase, Push

def phase(name, number="1", **fields):
    found = queue.SimpleQueue()
    request = Push(number, Phase(name), "model.py", seconds=30.0, **fields)
    start_phase(request, found.put, is_armed=lambda: False)
    return found.get(timeout=3600)

def shown(result):
    return [result.state.value, result.error.partition(" (")[0], *result.changed]

FIXED = "def f(): return 2\\nNEW = 1\\n"
stop = threading.Event()
def helper():
    try:
        print(json.dumps(test()))
    finally:
        stop.set()
"""
RUN = """
thread = threading.Thread(target=helper)
thread.start()
while not stop.is_set():
    model.f()
    time.sleep(0.001)
thread.join()
"""


def result_of(folder: Path, test: str, model: str = "def f(): return 1\n") -> object:
    """Return the result of a function in a process that has loaded model.py and calls its function in a loop."""
    (folder / "model.py").write_text(model)
    code = PRELUDE.format(folder=str(folder)) + test + RUN
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=folder
    )
    assert "" == done.stderr
    return json.loads(done.stdout)


def test_phases(tmp_path: Path):
    """The code is swapped by `commit`, while the main thread is held; tracebacks then show the new text."""
    test = """
def test():
    ready = phase("prepare", source=FIXED)
    held = phase("hold")
    before = model.f()
    done = phase("commit")
    return [ready.functions, held.place, before, model.f(), shown(done), linecache.getline(model.__file__, 1)]
"""
    expected = [["f"], "f", 1, 2, ["done", "", "f()", "NEW = 1"], "def f(): return 2\n"]
    assert expected == result_of(tmp_path, test)


def test_constant_alone(tmp_path: Path):
    """If only constants change, the main thread is held beside their users, even if those are main loops."""
    test = """
def test():
    ready = phase("prepare", source=model.TEXT.replace("RATE = 1", "RATE = 2"))
    held = phase("hold", function="step", nested=True)
    before = model.RATE
    return [ready.functions, held.place, before, shown(phase("commit")), model.RATE]
"""
    (tmp_path / "user.py").write_text(
        "import model\ndef step(): model.time.sleep(0.001)\ndef main():\n    while model.RATE == 1: step()\n"
    )
    model = "import time, user\nRATE = 1\ndef f(): user.main()\nTEXT = open(__file__).read()\n"
    expected = [["main", "step"], "step", 1, ["done", "", "RATE = 2"], 2]
    assert expected == result_of(tmp_path, test, model)


def test_abort(tmp_path: Path):
    """After `abort` nothing is changed, and the main thread continues."""
    test = """
def test():
    phase("prepare", source=FIXED)
    phase("hold")
    phase("abort")
    return [hasattr(model, "NEW"), model.f(), shown(phase("commit"))]
"""
    assert [False, 1, ["", "this process no longer has the new code; push again"]] == result_of(tmp_path, test)


def test_abort_during_a_hold(tmp_path: Path):
    """A hold that is still waiting ends at once when its push is aborted."""
    test = """
def test():
    phase("prepare", source=FIXED)
    found = queue.SimpleQueue()
    request = Push("1", Phase.HOLD, function="never called", seconds=3600.0)
    start_phase(request, found.put, is_armed=lambda: False)
    while sys.getprofile() is None and not in_main("sys.getprofile()"):
        time.sleep(0.01)
    phase("abort")
    found.get(timeout=3600)
    while in_main("sys.getprofile()"):  # the main thread ends the hold after it was answered
        time.sleep(0.01)
    return model.f()

def in_main(expression):
    from relay_agent.job.main_thread import call_in_main_thread
    values = queue.SimpleQueue()
    call_in_main_thread(lambda: values.put(eval(expression) is not None))
    return values.get(timeout=3600)
"""
    assert 1 == result_of(tmp_path, test)


def test_two_pushes(tmp_path: Path):
    """A second push is refused while one is in progress."""
    test = """
def test():
    phase("prepare", source=FIXED)
    second = phase("prepare", "2", source=FIXED)
    phase("abort")
    return [shown(second), shown(phase("prepare", "2", source=FIXED))]
"""
    assert [["", "another push to this process is in progress"], ["ready", ""]] == [
        found[:2]
        for found in result_of(tmp_path, test)  # type: ignore[attr-defined]
    ]


def test_text_that_does_not_compile(tmp_path: Path):
    """The error names the line, and the next push is possible."""
    test = """
def test():
    broken = phase("prepare", source="def f(:")
    return [broken.error, phase("prepare", "2", source=FIXED).state.value]
"""
    error, state = result_of(tmp_path, test)  # type: ignore[misc]
    assert error.startswith("SyntaxError: ")
    assert "model.py, line 1" in error
    assert "ready" == state


def test_swap_without_a_hold(tmp_path: Path):
    """A push that is committed at once swaps the code between two instructions of the main thread."""
    test = """
def test():
    phase("prepare", source=FIXED)
    return [shown(phase("commit")), model.f()]
"""
    assert [["done", "", "f()", "NEW = 1"], 2] == result_of(tmp_path, test)
