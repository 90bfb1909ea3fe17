"""Facts about the names that an expression sees."""

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from relay_agent.stacks import evaluation
from relay_agent.stacks.evaluation import find_places
from tests.support.debuggers.examined_job import stopped_at

THREADS = """\
import threading

def backward(gradient):
    half = gradient / 2
    return half

def main():
    thread = threading.Thread(target=backward, args=(3.0,), name="autograd")
    thread.start()
    thread.join()
    print("ended")

main()
"""


class Namespace(dict[str, Any]):
    """The namespace of a class as the job may define it."""

    @staticmethod
    def keys() -> Any:
        raise AssertionError("a method of the job was executed")

    __iter__ = items = keys


class Prepared(type):
    @classmethod
    def __prepare__(cls, *_arguments: object) -> Namespace:
        return Namespace()

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        return type.__new__(cls, name, bases, dict(dict.items(namespace)))


@pytest.mark.parametrize("is_stopped", [True, False])
def test_namespace_of_a_class(monkeypatch: pytest.MonkeyPatch, is_stopped: bool):
    """The names in the body of a class are read without a method of its namespace, in a halted or a running rank."""
    found: list[object] = []
    ident = threading.get_ident()
    monkeypatch.setattr(evaluation, "stopped_threads", lambda: {ident: True} if is_stopped else {})

    def find(body: FrameType) -> None:
        monkeypatch.setattr(evaluation, "held_frames", lambda *_arguments, **_options: [body] * is_stopped)
        found.extend(place.names["inner"] for place in find_places("inner"))

    class Body(metaclass=Prepared):
        inner = 3
        find(sys._getframe())

    assert [3] == found


async def test_thread_that_has_stopped_on_its_own(tmp_path: Path):
    """The frame of the thread at the breakpoint is chosen, not that of the main thread, which is stopped along with it.

    After a step, it is still this thread.
    """
    script = tmp_path / "train.py"
    script.write_text(THREADS)
    async with stopped_at(script, 4) as examined:
        assert ["3.0", "backward train.py:4", ["autograd"]] == [*await examined.ask("gradient")]
        await examined.move("next")
        assert ["1.5", "backward train.py:5", ["autograd"]] == [*await examined.ask("half")]
