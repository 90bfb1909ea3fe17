"""Facts about hooks by changed code objects."""

import pickle
import sys

import pytest

from relay_agent.trigger.replaced_code import COMPILED
from tests.unit.relay_agent.trigger.conftest import Watched

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has sys.monitoring")
SOURCE = """\
def make(scale):
    def step(loss, *, rate=1):
        value = loss * scale * rate  # here
        return value
    return step

step = make(2)

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
