"""Facts about reading the local names of frames."""

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from relay_agent.stacks.local_names import copied_names, keeper_of, local_names


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


@pytest.mark.parametrize("set_function", [sys.setprofile, sys.settrace])
def test_thread_that_is_traced(set_function: Callable[[Any], object]) -> None:
    """The names of a frame can be read while another thread executes its trace or profile function for this frame."""
    seen: list[dict[str, Any]] = []

    def step(number: int) -> int:
        return number + 1

    def function(frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code is step.__code__:
            set_function(None)  # the helper has functions, too
            helper = threading.Thread(target=lambda: seen.append(copied_names(frame)))
            helper.start()
            helper.join()

    set_function(function)
    try:
        assert 3 == step(2)
    finally:
        set_function(None)
    assert [{"number": 2}] == seen


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a copy")
def test_function_that_may_keep_its_names() -> None:
    """A function that calls `locals()` is named, because to read its names would change the result."""

    def keeps() -> object:
        return locals()

    assert "locals" == keeper_of(keeps.__code__)
    assert "vars" == keeper_of((lambda: vars()).__code__)  # noqa: PLW0108 - the function that calls it matters
    assert "" == keeper_of((lambda model: (model.locals(), vars(model))).__code__)


def test_namespace_of_the_job() -> None:
    """The names of a module or class are read without code of the mapping that the job has chosen."""

    class Names(dict[str, object]):
        __iter__ = items = keys = property(lambda _self: pytest.fail("code was executed"))  # type: ignore[assignment]

    frames: list[FrameType] = []
    exec("frames.append(look())", {"frames": frames, "look": lambda: sys._getframe(1)}, Names(step=3))
    assert {"step": 3} == copied_names(frames[0]) == local_names(frames[0])
