"""Facts about the watches of a process."""

import gc
import os
import sys
import time
from types import FunctionType
from typing import Any

import pytest

from relay_agent.trigger import table
from relay_agent.trigger.table import MAX_WATCHES, PAUSED
from tests.support.machine.deadline import DEADLINE
from tests.unit.relay_agent.trigger.conftest import Watched

SOURCE = """\
def outer():
    def step(loss):
        value = loss  # here
        return value
    return step

step = outer()

def last():
    return 1
"""


def test_log_and_place(watched: Watched) -> None:
    """The first question is answered at once with the place, and the job's log names the user once."""
    _, client = watched(SOURCE)
    answer = client.ask("here", file="train.py", wait=10.0)
    assert ("step train.py:3", "", "") == (answer.place, answer.note, answer.error)
    client.ask("here", file="train.py")
    assert ["alice is watching train.py:3"] == client.logged


def test_versions_of_a_function(watched: Watched) -> None:
    """The place in several versions of a function, such as those before and after a push, is named once."""
    train, client = watched(SOURCE)
    module = FunctionType(compile(SOURCE, str(train.path), "exec"), {})
    assert "step train.py:3" == client.ask("here").place
    assert "<module>" == module.__code__.co_name


def test_line_without_code(watched: Watched) -> None:
    """The note names the line that is watched instead, if there is one."""
    _, client = watched(SOURCE)
    assert "line 8 has no code, so line 5 is watched" == client.ask("here", line=8, id="8").note
    assert "train.py has no code at line 99 or after it" == client.ask("here", line=99, id="99").note


def test_line_without_code_in_no_function(watched: Watched) -> None:
    """The note names that the next line is in no function, because it may never be reached again."""
    train, client = watched("")
    module = FunctionType(compile("import sys\n\nsys.platform\n", str(train.path), "exec"), {})
    assert "line 2 has no code, so line 3 is watched, which is in no function" == client.ask("here", line=2).note
    assert "<module>" == module.__code__.co_name


def test_file_that_is_loaded_later(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch waits for its file."""
    for name in ("SEARCH_INTERVAL", "MAX_SEARCH_INTERVAL"):
        monkeypatch.setattr(f"relay_agent.trigger.table.{name}", 0.0)
    train, client = watched("")
    answer = client.ask("here", "loss", line=3)
    assert ("", "", "") == (answer.place, answer.note, answer.error)
    train.execute(SOURCE)
    client.ask("here", "loss", line=3)
    train.step(1)
    assert ["1"] == client.texts("here", "loss", line=3)


def test_invalid_watch(watched: Watched) -> None:
    """An error is answered at once and stays; later questions wait as usual, so clients do not ask all the time."""
    _, client = watched(SOURCE)
    assert client.ask("here", "1 +", wait=10.0).error.startswith("invalid expression '1 +': SyntaxError")
    started = time.monotonic()
    assert client.ask("here", "1 +", wait=0.1).error
    assert time.monotonic() >= started + 0.1
    assert [] == client.logged


def test_end_restores_everything(watched: Watched) -> None:
    """After the last question, the function has its code, and the watch reports no more."""
    train, client = watched(SOURCE)
    code, inner = train.step.__code__, train.outer.__code__
    client.ask("here", "loss")
    train.outer()(1)
    train.step(2)
    answer = client.ask("here", "loss", is_last=True)
    assert (["1", "2"], "by request") == ([hit.text for hit in answer.hits], answer.ended)
    assert train.step.__code__ is code
    assert train.outer.__code__ is inner
    assert train.outer()(1) == 1


def test_last_question_installs_nothing(watched: Watched) -> None:
    """The last question about a watch that the process does not have is answered without one."""
    _, client = watched(SOURCE)
    assert "" == client.ask("here", is_last=True).place
    assert [] == client.logged


@pytest.mark.parametrize(
    ("limit", "fields"), [("LEASE", {}), ("", {"lasts": 0.05})], ids=["nobody asks", "its time is over"]
)
def test_watch_ends_by_itself(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, limit: str, fields: dict[str, Any]
) -> None:
    """A watch that nobody asks about is removed, and so is one whose time is over."""
    monkeypatch.setattr("relay_agent.trigger.table.CHECK_INTERVAL", 0.01)
    train, client = watched(SOURCE)
    client.ask("here", **fields)
    before = client.table._watches["here"]
    if limit:
        monkeypatch.setattr(f"relay_agent.trigger.table.{limit}", 0.05)
    deadline = time.monotonic() + DEADLINE
    while before.hooks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    train.step(1)
    assert 0 == before.answer().reached
    assert ("after 0.05 s" if fields else "because nobody asks") == before.ended


def test_two_watches_of_a_function(watched: Watched) -> None:
    """Watches of the same line and of the same function are independent of each other."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    client.ask("here", "loss * 2", id="twice")
    client.ask("here", "value", id="next", line=4)
    train.step(1)
    assert ["1"] == client.texts("here", "loss", is_last=True)
    train.step(2)
    assert ["2", "4"] == client.texts("here", "loss * 2", id="twice")
    assert ["1", "2"] == client.texts("here", "value", id="next", line=4)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_forked_child(watched: Watched) -> None:
    """A forked child counts nothing, and the parent continues."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    watch = client.table._watches["here"]
    child = os.fork()
    if not child:
        client.table.forget()
        train.step(1)
        os._exit(watch.answer().reached)
    assert 0 == os.waitpid(child, 0)[1]
    train.step(2)
    assert ["2"] == client.texts("here", "loss")


def test_functions_that_the_collector_does_not_list(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `gc.freeze`, the functions of modules are found."""
    train, client = watched(SOURCE)
    monkeypatch.setitem(sys.modules, "train", train.module)
    gc.freeze()
    try:
        client.ask("here", "loss")
    finally:
        gc.unfreeze()
    train.step(1)
    assert ["1"] == client.texts("here", "loss")


def test_push(watched: Watched) -> None:
    """A push sees the job's own code, and the watch continues in the new code as soon as the push is over."""
    train, client = watched(SOURCE.replace("def outer", "def other(): ...\n\ndef outer"))
    client.ask("here", "loss")
    client.table.pause("push", 60.0)
    assert PAUSED == client.ask("here", "loss").note
    result = train.push(train.path.read_text().replace("return value", "return value + 1"))
    assert ["outer.<locals>.step()"] == [each for each in result.changed if "step" in each]
    client.table.resume("another")
    assert PAUSED == client.ask("here", "loss").note
    client.table.resume("push")
    assert 2 == train.step(1)
    assert ["1"] == client.texts("here", "loss")


def test_push_whose_end_is_lost(watched: Watched) -> None:
    """The watch continues after the time that was given for a phase."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    client.table.pause("push", 0.0)
    assert "" == client.ask("here", "loss").note
    train.step(1)
    assert ["1"] == client.texts("here", "loss")


def test_many_watches(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process refuses more watches than it has room for, until one has ended."""
    monkeypatch.setattr(table, "LEASE", 100 * DEADLINE)  # to install so many may take longer than it
    _, client = watched(SOURCE)
    for number in range(MAX_WATCHES):
        assert "" == client.ask("here", id=f"{number}").error
    assert f"the process has {MAX_WATCHES} watches already; end one of them" == client.ask("here").error
    client.ask("here", id="0", is_last=True)
    assert "" == client.ask("here").error


def test_search_that_fails(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the job's objects raise is answered, and the place is given up."""

    def refuse(_codes: object, _line: int) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("relay_agent.trigger.table.find_places", refuse)
    _, client = watched(SOURCE)
    assert "the line cannot be watched: RuntimeError: no" == client.ask("here").error


def test_hooks_that_cannot_be_removed(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a watch does not depend on it, nor does the next watch."""

    def refuse(_hooks: object) -> str:
        raise RuntimeError("no")

    train, client = watched(SOURCE)
    client.ask("here", "loss")
    with monkeypatch.context() as changed:
        changed.setattr(client.table._engine, "set_hooks", refuse)
        assert "by request" == client.ask("here", "loss", is_last=True).ended
    train.step(1)
    client.ask("here", "loss", id="next")
    train.step(2)
    assert ["2"] == client.texts("here", "loss", id="next")


def test_exit_waits_for_the_last_hits(watched: Watched) -> None:
    """The hits just before the process exits are still answered."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    train.step(1)
    client.table.end_process()
    assert not client.table._watches


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python 3.13 has a new dict for each call of locals()")
def test_function_that_keeps_its_local_names(watched: Watched) -> None:
    """A watch would change the dict that `locals()` has returned, so such a function is refused."""
    _, client = watched("def step():\n    names = locals()\n    names['rate'] = 1\n    return names  # here\n")
    assert client.ask("here").error.startswith("step() calls locals(), whose result a watch would change")
