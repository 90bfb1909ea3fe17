"""Facts about a main thread that is held at a call; the tests run in a process of their own, with its main thread."""

import subprocess
import sys

import pytest

from tests.support.machine.deadline import DEADLINE

PRELUDE = """
import sys, threading, time
from relay_agent.job.main_thread import call_in_main_thread
from relay_agent.push.in_process import Hold
from relay_core.agent_api.push import Phase, Push

def inner(): return 1
def outer(): return inner()
CODES = {id(outer.__code__): "outer", id(inner.__code__): "inner"}
stop = threading.Event()
counts = []

def body():
    counts.append(outer())

def hold(**options):
    return Push("1", Phase.HOLD, seconds=30.0, **options)

def helper():
    try:
        test()
    finally:
        stop.set()

def run(body):
    thread = threading.Thread(target=helper)
    thread.start()
    while not stop.is_set():
        body()
        time.sleep(0.001)
    thread.join()
"""


def output(code: str) -> str:
    """Return what a program prints that begins with the prelude."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert "" == done.stderr
    return done.stdout.strip()


def test_held_at_the_outermost_call():
    """The main thread is held at the outermost changed function, and then continues without a profile function."""
    code = """
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    print(held.wait(hold(), time.monotonic() + 3600).value, held.place)
    number = len(counts)
    time.sleep(0.1)
    print(number == len(counts), held.end(lambda frame: print(frame.f_code.co_name)))
    while len(counts) < number + 5: time.sleep(0.001)
run(body)
print(sys.getprofile())
"""
    assert ["held outer", "outer", "True True", "None"] == output(code).splitlines()


def test_inner_call_only_if_requested():
    """A call inside a changed function that a loop calls again counts only on request: the outer call may be long."""
    code = """
def outer_loop():
    run(inner)
CODES = {id(outer_loop.__code__): "outer_loop", id(inner.__code__): "inner"}
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    print(held.wait(Push("1", Phase.HOLD, seconds=0.3), time.monotonic() + 3600).value)
    print(held.running[0], held.awaited)
    print(held.wait(hold(nested=True), time.monotonic() + 3600).value, held.place)
    held.end()
for _ in range(1):
    outer_loop()
"""
    assert ["running", "outer_loop ('inner', 'outer_loop')", "held inner"] == output(code).splitlines()


def test_inner_call_of_a_main_loop():
    """A call inside a changed function that no loop calls counts immediately, and only this call is awaited."""
    code = """
def main():
    run(inner)
CODES = {id(main.__code__): "main", id(inner.__code__): "inner"}
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    print(held.wait(hold(), time.monotonic() + 3600).value, held.place, held.awaited)
    held.end()
main()
"""
    assert "held inner ('inner',)" == output(code)


def test_main_loop_alone():
    """If the only changed function is executed in a call that no loop repeats, no call of it is awaited."""
    code = """
def main():
    run(inner)
def test():
    held = Hold({id(main.__code__): "main"}, time.monotonic() + 3600)
    while held.awaited:
        held.wait(Push("1", Phase.HOLD, seconds=0.01), time.monotonic() + 3600)
    print(held.running, held.awaited)
    held.end()
main()
"""
    assert "('main',) ()" == output(code)


def test_next_call():
    """A held main thread continues to its next call, or to that of a given function."""
    code = """
def body():
    counts.append(1)
    outer()
    inner()
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    held.wait(hold(function="outer"), time.monotonic() + 3600)
    number = len(counts)
    print(held.wait(hold(function="outer", again=True), time.monotonic() + 3600).value, len(counts) - number)
    print(held.wait(hold(function="inner"), time.monotonic() + 3600).value, held.place, len(counts) - number)
    held.end()
run(body)
"""
    assert ["held 1", "held inner 1"] == output(code).splitlines()


def test_targets():
    """Calls before the given count are not held; a held main thread continues if it has not reached the count."""
    code = """
import relay_agent.push.in_process as module
begun = []
module.begun_collectives = lambda: {"g": len(begun)}
def body():
    outer()
    begun.append(1)
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    held.wait(hold(), time.monotonic() + 3600)
    first = held.counts["g"]
    for more in (0, 7, 7, 9):
        state = held.wait(hold(targets={"g": first + more}), time.monotonic() + 3600)
        print(state.value, held.counts["g"] - first, held.counts["g"] == len(begun))
    print(held.counts["g"] - held.before["g"])
    held.end()
run(body)
"""
    assert ["held 0 True", "held 7 True", "held 7 True", "held 9 True", "1"] == output(code).splitlines()


def test_nobody_extends_the_hold():
    """A main thread continues at the end of its time, and the code cannot be swapped then."""
    code = """
def test():
    until = time.monotonic() + 0.5
    held = Hold(CODES, until)
    held.wait(hold(), until)
    number = len(counts)
    while len(counts) < number + 5: time.sleep(0.001)
    print(held.end(lambda frame: print("swapped")))
run(body)
"""
    assert "False" == output(code)


def test_job_with_a_profile_function():
    """A profile function of the job stays, and the obstacle is named."""
    code = """
mine = lambda *arguments: None
def test():
    held = Hold(CODES, time.monotonic() + 3600)
    held.wait(hold(), time.monotonic() + 3600)
    print(held.obstacle)
sys.setprofile(mine)
run(outer)
print(sys.getprofile() is mine)
"""
    assert ["the job has set a profile function", "True"] == output(code).splitlines()


@pytest.mark.parametrize("work", ["time.sleep(0.001)", "sum(range(1000))"])
def test_function_in_the_main_thread(work: str):
    """A function is called in the main thread, between two instructions of whatever it executes."""
    code = f"""
def test():
    done = threading.Event()
    def call():
        print(threading.current_thread() is threading.main_thread())
        done.set()
    call_in_main_thread(call)
    done.wait(3600)
def body():
    {work}
run(body)
"""
    assert "True" == output(code)
