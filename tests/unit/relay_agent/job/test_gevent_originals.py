"""Facts about the modules that the job side uses while the job has replaced parts of the standard library."""

import os
import re
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import pytest

from relay_agent.job import gevent_originals
from tests.support.machine.deadline import DEADLINE

JOB_SIDE = (
    "collectives",
    "debuggee",
    "debugpy_internals",
    "job",
    "node/in_job",
    "prefetch",
    "push",
    "stacks",
    "values",
)
IMPORT = re.compile(r"^\s*(?:import|from) (?:json|threading|queue|subprocess|time)\b", re.MULTILINE)
NOT_REPLACED = {
    "collectives/ras.py",
    "debuggee/adapter_guard/sitecustomize.py",
    "debuggee/post_mortem.py",
    "job/gevent_originals.py",
    "job/paths.py",
    "stacks/out_of_process.py",
}
"""`post_mortem` replaces the hooks of the program's own threads, and `paths` reads the clock once, when it is imported;
`gevent_originals` is where the others take them from, and the rest does not run in the job."""
THREADS = """
import _thread, sys, threading
main = _thread.get_ident()
from relay_agent.job import gevent_originals
done = _thread.allocate_lock()
done.acquire()

def copy():
    gevent_originals.time.sleep(0)
    print(gevent_originals.threading.main_thread().ident == main, gevent_originals.threading.get_ident() != main)
    done.release()

threading.Thread(target=copy).start()
from gevent import monkey
monkey.patch_all()
while not done.acquire(False):
    gevent_originals.time.sleep(0.01)
"""
NATIVE = """
import gevent
from gevent import monkey
monkey.patch_all()
from _queue import SimpleQueue
from relay_agent.job.gevent_originals import os, socket, subprocess, threading
print(monkey.is_module_patched("threading"), sys.modules["threading"].Thread is not threading.Thread)
arrived = SimpleQueue()
threading.Thread(target=lambda: arrived.put(subprocess.run(["true"]).returncode), daemon=True).start()
print(arrived.get(timeout=3600), socket.socketpair()[0].__class__.__module__)
"""
FORK = f"""
import _thread, os, time
os.environ["GEVENT_SUPPORT"] = "True"
from relay_agent.job import gevent_originals

def copy():
    with gevent_originals._copies._making:
        started.release()
        time.sleep(0.3)  # a copy takes some time, in which the other thread forks

started = _thread.allocate_lock()
started.acquire()
_thread.start_new_thread(copy, ())
started.acquire()
child = os.fork()
if not child:
    os._exit(0 if gevent_originals.os.getpid() else 1)
deadline = time.monotonic() + {DEADLINE / 2}
while not (ended := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > deadline:
        os.kill(child, 9)
    time.sleep(0.01)
print(ended[1])
"""
PATCHING = """
import _thread, sys
sys.setswitchinterval(1e-6)
from relay_agent.job import gevent_originals
names = ("Lock", "Thread", "get_ident")
found = []

def copy():
    while not gevent_originals.is_active():
        pass
    found.extend(getattr(gevent_originals.threading, name).__module__ for name in names)

_thread.start_new_thread(copy, ())
from gevent import monkey
monkey.patch_all()
while len(found) < len(names):
    gevent_originals.time.sleep(0.01)
print([name.partition(".")[0] for name in found])
"""
ENDING = """
import threading
from relay_agent.job import gevent_originals
patched = threading.Event()
thread = threading.Thread(target=lambda: (patched.wait(), gevent_originals.threading.get_ident()))
thread.start()
from gevent import monkey
monkey.patch_all()
patched.set()
thread.join()
print("joined")
"""

IMPORTING = """
import _thread, time
start, sleep = _thread.start_new_thread, time.sleep
from relay_agent.job import gevent_originals
from gevent import monkey
monkey.patch_all()
import gevent, importlib._bootstrap
found = []

def in_thread(work):
    try:
        found.append(work())
    except BaseException as error:
        found.append(repr(error))

def import_module():
    gevent_originals.prepare_imports()
    started.append(True)
    import xmlrpc.client
    return "imported"

started = []
for name, work in (("socket", lambda: gevent_originals.socket.socketpair.__name__), ("xmlrpc.client", import_module)):
    lock = importlib._bootstrap._get_module_lock(name)
    lock.acquire()  # as this thread does while it imports the module
    start(in_thread, (work,))
    if work is import_module:
        while not started:
            sleep(0.01)
        sleep(0.2)  # the thread waits for the lock
        lock.release()
    while not found:
        sleep(0.01)
    print(found.pop())
"""

STOP_CLOCK = """
import threading, time
def stop_clock():  # as freezegun does, also in modules that have imported a function; and without pauses
    fakes = {time.time: lambda: 1.0, time.monotonic: lambda: 1.0, time.sleep: lambda seconds: None}
    for module in sys.modules.copy().values():
        for name, value in vars(module).copy().items() if module is not threading else ():
            if type(value) is type(len) and value in fakes:
                setattr(module, name, fakes[value])
real = time.clock_gettime
"""
WAIT = """
started = real(time.CLOCK_MONOTONIC)
attached = debugger.wait_for_attach(0.2, threading.Event())
print(attached, real(time.CLOCK_MONOTONIC) - started >= 0.2, time.monotonic())
"""


def _output(code: str) -> str:
    command = [sys.executable, "-c", f"import sys\n{code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE).stdout


def test_nothing_is_copied_without_gevent() -> None:
    """In a process without gevent the attributes are those of the standard library, and gevent is not imported."""
    assert threading.Thread is gevent_originals.threading.Thread
    code = "from relay_agent.job.gevent_originals import socket, _copies; socket.socket; print(len(_copies.modules))"
    assert _output(f"{code}; print('gevent' in sys.modules)") == "0\nFalse\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(
            *(NATIVE, "True True\n0 _relay_agent_original_socket\n"),
            id="a thread and a process run while the main thread, whose greenlets cannot run, waits for them",
        ),
        pytest.param(
            *(THREADS, "True True\n"),
            id="a copy of threading that another thread has made knows the main thread, not that thread, as main",
        ),
        pytest.param(
            *(PATCHING, "['_thread', '_relay_agent_original_threading', '_thread']\n"),
            id="a thread that makes the copies while gevent patches the modules gets the original functions",
        ),
        pytest.param(*(ENDING, "joined\n"), id="a thread that makes the copies can be joined when it has ended"),
        pytest.param(
            *(IMPORTING, "socketpair\nimported\n"),
            id="a thread copies without the locks of import, and can wait for those locks when it imports itself",
        ),
    ],
)
def test_copies_in_a_patched_process(code: str, printed: str) -> None:
    """What the job side takes from here is native, whichever thread makes the copies, and whenever it does."""
    pytest.importorskip("gevent", reason="gevent is not installed (make extras)")
    assert _output(code) == printed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_forked_during_a_copy() -> None:
    """A process that is forked while another thread makes the copies does not wait for that thread."""
    assert _output(FORK) == "0\n"


@pytest.mark.parametrize("code", ["{use} stop_clock()", "stop_clock(); {use}"])
def test_the_job_has_stopped_its_clock(code: str) -> None:
    """A wait for a debugger ends when its time is over, by the real clock, whenever the job has stopped its own."""
    use = "from relay_agent.debuggee.debugger import debugger;"
    assert _output(STOP_CLOCK + code.format(use=use) + WAIT) == "False True 1.0\n"


TIME_MACHINE = """
import datetime, time, time_machine
real, monotonic, frozen = time.perf_counter, time.monotonic, datetime.datetime(2020, 1, 1)
if {first}:
    import relay_agent.job.gevent_originals
with time_machine.travel(frozen, tick=False):
    assert monotonic() == monotonic()
    from relay_agent.debuggee.debugger import debugger
    import threading
    started = real()
    print(debugger.wait_for_attach(0.2, threading.Event()), real() - started >= 0.2)
"""


@pytest.mark.parametrize("first", [True, False])
def test_the_job_has_changed_the_clock_s_c_code(first: bool) -> None:
    """A wait for a debugger ends when its time is over, while a version of time-machine stops all clocks."""
    pytest.importorskip("time_machine", reason="time-machine is not installed")
    if int(version("time-machine").split(".")[0]) > 2:
        pytest.skip("this version of time-machine does not stop the monotonic clock")
    assert _output(TIME_MACHINE.format(first=first)) == "False True\n"


REPLACE_JSON = {
    "bytes": "json.dumps = lambda value, **_: b'{}'; json.loads = lambda text, **_: {}",
    "numbers": "json.loads = functools.partial(json.loads, parse_int=decimal.Decimal)",
    "mock": "mock.patch('json.loads').start(); mock.patch('json.dumps').start()",
    "module": "sys.modules['json'] = types.SimpleNamespace(dumps=json.dumps, loads=json.loads)",
    "default": "json._default_encoder = json._default_decoder = None",
}
MESSAGE = """
from relay_agent.node.protocol import decode, encode
print(encode({"answer": 1, "result": [object]}), decode(b'{"id": 17}'), type(decode(b'{"id": 17}')["id"]).__name__)
"""


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("replace", REPLACE_JSON.values(), ids=REPLACE_JSON)
def test_the_job_has_replaced_json(replace: str, is_late: bool) -> None:
    """Messages to the agent and from it are the same, whatever the job has put in place of `json` and its functions."""
    before = "import decimal, functools, json, types\nfrom unittest import mock\n"
    early = "import relay_agent.node.protocol\n" if is_late else ""
    assert _output(f"{before}{early}{replace}\n{MESSAGE}") == (
        """b'{"answer":1,"result":["<class \\'object\\'>"]}\\n' {'id': 17} int\n"""
    )


def test_no_lock_of_the_job_side_is_gevents() -> None:
    """What runs in the job takes its locks, queues, processes and clock from here, and never those of the job."""
    agent = Path(gevent_originals.__file__).parents[1]
    files = [path for folder in JOB_SIDE for path in (agent / folder).rglob("*.py")]
    found = {path.relative_to(agent).as_posix() for path in files if IMPORT.search(path.read_text())}
    assert found == NOT_REPLACED
