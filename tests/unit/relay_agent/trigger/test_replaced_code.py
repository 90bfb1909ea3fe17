"""Facts about hooks by changed code objects."""

import pickle
import sys
import threading
from collections.abc import Callable

import pytest

from relay_agent.trigger.replaced_code import COMPILED, LATER, NOT_WATCHED, TRACED
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE
from tests.unit.relay_agent.trigger.conftest import Watched

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has sys.monitoring")
SOURCE = """\
def make(scale):
    def step(loss, *, rate=1):
        value = loss * scale * rate  # here
        return value
    return step

step = make(2)

def loop(first, then=lambda: None):
    first()
    return then()  # loop

def numbers():
    for number in range(3):
        yield number  # yield
"""


def test_names_and_closures(watched: Watched) -> None:
    """A changed function has its names, closure and defaults; so has one that is made later."""
    train, client = watched(SOURCE)
    before = train.step.__code__
    client.ask("here", "scale")
    after = train.step.__code__
    assert before is not after
    for name in ("co_filename", "co_name", "co_varnames", "co_freevars", "co_firstlineno", "co_flags"):
        assert getattr(before, name) == getattr(after, name)
    assert [12, 9] == [train.step(2, rate=3), train.make(3)(3)]
    assert ["2", "3"] == client.texts("here", "scale")


def test_function_that_is_sent_to_another_process(watched: Watched) -> None:
    """The code of a changed function can be pickled as cluster libraries do it, and does nothing elsewhere."""
    train, client = watched(SOURCE)
    client.ask("here")
    call = next(each for each in train.step.__code__.co_consts if callable(each))
    assert b"relay_agent" not in pickle.dumps(call)
    assert {} == pickle.loads(pickle.dumps(call))()
    assert 0 == client.ask("here").reached


def test_generator_that_is_suspended(watched: Watched) -> None:
    """A generator that has started is not changed; one that starts later is watched."""
    train, client = watched(SOURCE)
    client.ask("yield", "number")
    assert [0, 1, 2] == [*train.numbers()]
    assert ["0", "1", "2"] == client.texts("yield", "number")


def test_compiled_code(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that torch.compile may have compiled is not changed, which the note names."""
    monkeypatch.setattr("relay_agent.trigger.replaced_code.has_compiled_code", lambda: True)
    train, client = watched(SOURCE)
    code = train.step.__code__
    assert client.ask("here").note.startswith(COMPILED)
    assert train.step.__code__ is code


@needs_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_function_that_is_compiled_while_it_is_watched(watched: Watched) -> None:
    """torch.compile compiles what is around the call of the hook, and the line is still watched."""
    import torch

    train, client = watched(SOURCE)
    client.ask("here", "scale")
    try:
        assert 6 == torch.compile(train.step, backend="eager")(torch.tensor(3))
    finally:
        torch.compiler.reset()
    assert ["2"] == client.texts("here", "scale")


def blocked_main(act: Callable[[], object]) -> Callable[[], None]:
    """Return a function that makes a thread act while its caller executes only C code."""

    def wait() -> None:
        done = threading.Lock()
        done.acquire()
        thread = threading.Thread(target=lambda: (act(), done.release()))
        thread.start()
        done.acquire()
        thread.join()

    return wait


def test_main_thread_in_c_code(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running call is watched once the main thread executes Python code again, which the note states."""
    monkeypatch.setattr("relay_agent.trigger.replaced_code.TRACE_TIME", 0.01)
    train, client = watched(SOURCE)
    notes: list[str] = []
    train.loop(blocked_main(lambda: notes.append(client.ask("loop", "first").note)))
    assert [LATER] == notes
    assert 1 == client.ask("loop", "first").reached


def test_tool_that_traces_the_main_thread(watched: Watched) -> None:
    """Calls that are already running stay with the tool, and the note names it."""
    train, client = watched(SOURCE)
    notes: list[str] = []

    def trace(*_event: object) -> None:
        pass

    def ask() -> None:
        thread = threading.Thread(target=lambda: notes.append(client.ask("loop", "first").note))
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            thread.start()
            while thread.is_alive():
                thread.join(0.001)
        finally:
            sys.settrace(before)

    train.loop(ask)
    assert [NOT_WATCHED.format(TRACED.format(f"{__name__}.{trace.__qualname__}"))] == notes


def test_watch_that_ends_while_the_main_thread_is_in_c_code(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread gets no trace function for a watch that is over."""
    monkeypatch.setattr("relay_agent.trigger.replaced_code.TRACE_TIME", 0.01)
    train, client = watched(SOURCE)
    before = sys.gettrace()
    ask = blocked_main(lambda: (client.ask("loop"), client.ask("loop", is_last=True)))
    assert before is train.loop(ask, sys.gettrace)


def test_push_beside_a_call_that_a_watch_has_changed(watched: Watched) -> None:
    """A push recognizes a call that executes a copy of the code, and reports that it continues with the old code."""
    train, client = watched(SOURCE)
    client.ask("loop")
    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=train.loop, args=(lambda: (begun.set(), over.wait(DEADLINE)),))
    thread.start()
    assert begun.wait(DEADLINE)
    client.table.pause("push", DEADLINE)
    result = train.push(train.path.read_text().replace("return then()", "return then() or 1"))
    client.table.resume("push")
    over.set()
    thread.join()
    assert ["loop()"] == result.changed
    where = "is running at train.py:10 in a thread"
    assert f"loop() {where}: this call executes the old code until it returns" in result.kept
