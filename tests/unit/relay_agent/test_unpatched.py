"""Facts about the modules that the job side uses while gevent has replaced parts of the standard library."""

import os
import subprocess
import sys
import threading

import pytest

from relay_agent import unpatched

THREADS = """
import _thread, sys, threading
main = _thread.get_ident()
from relay_agent import unpatched
done = _thread.allocate_lock()
done.acquire()

def copy():
    unpatched.time.sleep(0)
    print(unpatched.threading.main_thread().ident == main, unpatched.threading.get_ident() != main)
    done.release()

threading.Thread(target=copy).start()
from gevent import monkey
monkey.patch_all()
while not done.acquire(False):
    unpatched.time.sleep(0.01)
"""
NATIVE = """
import gevent
from gevent import monkey
monkey.patch_all()
from relay_agent.unpatched import os, queue, socket, subprocess, threading
print(monkey.is_module_patched("threading"), sys.modules["threading"].Thread is not threading.Thread)
arrived = queue.SimpleQueue()
threading.Thread(target=lambda: arrived.put(subprocess.run(["true"]).returncode), daemon=True).start()
print(arrived.get(timeout=60), socket.socketpair()[0].__class__.__module__)
"""
FORK = """
import _thread, os, time
from relay_agent import unpatched

def copy():
    with unpatched._copying:
        started.release()
        time.sleep(0.3)  # a copy takes some time, in which the other thread forks

started = _thread.allocate_lock()
started.acquire()
_thread.start_new_thread(copy, ())
started.acquire()
child = os.fork()
if not child:
    os.environ["GEVENT_SUPPORT"] = "True"
    os._exit(0 if unpatched.os.getpid() else 1)
deadline = time.monotonic() + 60
while not (ended := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > deadline:
        os.kill(child, 9)
    time.sleep(0.01)
print(ended[1])
"""
PATCHING = """
import sys, threading
sys.setswitchinterval(1e-6)
from relay_agent import unpatched
names = ("Lock", "Thread", "get_ident")
found = []

def copy():
    while not unpatched.is_active():
        pass
    found.extend(getattr(unpatched.threading, name).__module__ for name in names)

thread = threading.Thread(target=copy)
join = thread.join
thread.start()
from gevent import monkey
monkey.patch_all()
while len(found) < len(names):
    unpatched.time.sleep(0.01)
print([name.partition(".")[0] for name in found])
"""


def _output(code: str) -> str:
    command = [sys.executable, "-c", f"import sys\n{code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_nothing_is_copied_without_gevent() -> None:
    """In a process without gevent the attributes are those of the standard library, and gevent is not imported."""
    assert threading.Thread is unpatched.threading.Thread
    code = "from relay_agent.unpatched import socket, _copies; socket.socket; print(_copies.cache_info().currsize)"
    assert _output(f"{code}; print('gevent' in sys.modules)") == "0\nFalse\n"


def test_threads_are_native_in_a_patched_process() -> None:
    """A thread and a process run while the main thread, whose greenlets cannot run, waits for them."""
    pytest.importorskip("gevent", reason="gevent is not installed (make extras)")
    assert _output(NATIVE) == "True True\n0 socket\n"


def test_the_main_thread_is_known_in_a_copy() -> None:
    """A copy of `threading` that another thread has made knows the main thread, which it would take itself for."""
    pytest.importorskip("gevent", reason="gevent is not installed (make extras)")
    assert _output(THREADS) == "True True\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_forked_during_a_copy() -> None:
    """A process that is forked while another thread makes the copies does not wait for that thread."""
    assert _output(FORK) == "0\n"


def test_copies_are_made_after_the_patch() -> None:
    """A thread that needs a copy while gevent patches the modules waits until gevent has finished, which gets them."""
    pytest.importorskip("gevent", reason="gevent is not installed (make extras)")
    assert _output(PATCHING) == "['_thread', 'threading', '_thread']\n"
