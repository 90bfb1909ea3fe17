"""Facts about reading the local names of frames."""

import sys
import threading
import weakref
from types import FrameType

import pytest

from relay_agent.stacks.local_names import keeper_of, local_names, namespace_of
from tests.support.machine.deadline import DEADLINE


def test_local_values_are_not_kept() -> None:
    """A frame whose names were read keeps no value that its function has deleted."""

    class Tensor: ...

    tensor = Tensor()
    reference = weakref.ref(tensor)
    assert "tensor" in local_names(sys._getframe())
    del tensor
    assert reference() is None


def test_dict_of_the_job_is_not_emptied() -> None:
    """If the job has called `locals`, its dict keeps the names."""
    value = 1
    kept = locals()
    local_names(sys._getframe())
    assert value == kept["value"]


def test_names_of_exec_are_kept() -> None:
    """Names that exist only in the dict of a frame, because `exec` has assigned them, remain there."""
    exec("extra = 5")
    before = "extra" in sys._getframe().f_locals
    local_names(sys._getframe())
    assert before == ("extra" in sys._getframe().f_locals)


def test_names_of_another_thread() -> None:
    """The names of a function that another thread executes can be read, and are not kept either."""
    arrived, delete, deleted, leave = (threading.Event() for _ in range(4))

    class Tensor: ...

    def step() -> None:
        loss = Tensor()
        references.append(weakref.ref(loss))
        frames.append(sys._getframe())
        arrived.set()
        delete.wait(DEADLINE)
        del loss
        deleted.set()
        leave.wait(DEADLINE)

    frames: list[FrameType] = []
    references: list[weakref.ref[Tensor]] = []
    thread = threading.Thread(target=step)
    thread.start()
    assert arrived.wait(DEADLINE)
    assert "loss" in local_names(frames[0])
    delete.set()
    assert deleted.wait(DEADLINE)
    kept = references[0]()
    leave.set()
    thread.join()
    assert kept is None


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a copy")
def test_function_that_may_keep_its_names() -> None:
    """A function that calls `locals()` is named, because to read its names would change the result."""

    def keeps() -> object:
        return locals()

    assert "locals" == keeper_of(keeps.__code__)
    assert "" == keeper_of((lambda model: model.locals()).__code__)


def test_namespace_of_the_job() -> None:
    """The names of a module or class are read without code of the mapping that the job has chosen."""

    class Names(dict[str, object]):
        __iter__ = items = keys = property(lambda _self: pytest.fail("code was executed"))  # type: ignore[assignment]

    frames: list[FrameType] = []
    exec("frames.append(look())", {"frames": frames, "look": lambda: sys._getframe(1)}, Names(step=3))
    assert {"step": 3} == namespace_of(frames[0]) == local_names(frames[0])
