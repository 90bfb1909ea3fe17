"""Facts about expressions in the frames of a job; the values are hostile."""

import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from relay_agent.stacks.local_names import local_names
from relay_agent.trigger.expression import Expression, failure
from relay_core.errors import ConfigurationError


def evaluate(text: str, loss: object = 2) -> object:
    """Return the value of an expression in the frame of this function."""
    expression = Expression.of(text)
    assert expression is not None
    frame = sys._getframe()
    return expression.value(frame, local_names(frame))


def test_names() -> None:
    """An expression sees local and global names, also in a comprehension or lambda, and assigns none of them."""
    assert [(2, True)] == evaluate("[(loss, sys.modules is not None) for _ in 'a']")
    assert 3 == evaluate("(loss := 3)")
    assert 2 == evaluate("loss")


def test_invalid_expression() -> None:
    """A text that is not an expression is an error of the user; an empty one is ignored."""
    assert Expression.of(" ") is None
    with pytest.raises(ConfigurationError, match=r"invalid expression 'x =': SyntaxError"):
        Expression.of("x =")


def test_exceptions() -> None:
    """Every exception of an expression is described, including an exit and an exception without a text."""

    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert ["SystemExit: 3", "Hostile"] == [failure(SystemExit(3)), failure(Hostile())]


@pytest.mark.parametrize("claimed", [KeyboardInterrupt, None])
def test_exception_with_another_class(claimed: type | None) -> None:
    """An exception that claims to be an interrupt, or raises when asked for its class, is one of the expression."""

    class Claims(Exception):
        @property
        def __class__(self) -> type:
            if claimed is None:
                raise ValueError
            return claimed

    assert "Claims" == failure(Claims())


def test_exception_that_raises_itself() -> None:
    """An exception whose text cannot be computed because that raises it again is described by its type."""

    class Again(BaseException):
        def __str__(self) -> str:
            raise self

    assert "Again" == failure(Again())


def test_no_room_for_calls() -> None:
    """At the recursion limit, nothing but the call of `failure` itself raises an exception."""
    described = []

    def descend() -> None:
        try:
            descend()
        except RecursionError as error:
            try:
                described.append(failure(error))
            except RecursionError as again:
                traceback = again.__traceback__
                while traceback is not None:
                    assert traceback.tb_frame.f_code is not failure.__code__
                    traceback = traceback.tb_next
            raise

    with pytest.raises(RecursionError):
        descend()
    assert "an exception that cannot be described" in described
    assert described[-1].startswith("RecursionError: maximum recursion depth exceeded")


class Stop(Exception):
    """What the handlers raise."""


class Handler:
    """A handler that is an object, and must not be asked for more than the call."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        raise Stop

    def __getattr__(self, name: str) -> object:
        raise SystemExit(f"the job's code was called for {name}")


class Inherited(Handler): ...


HANDLERS = [Handler().__call__, Handler(), Inherited(), functools.partial(Handler.__call__, Handler())]


@pytest.mark.parametrize("handler", HANDLERS, ids=["method", "object", "inherited", "partial"])
def test_exception_of_a_signal_handler(handler: Callable[[int, FrameType | None], None]) -> None:
    """What a signal handler of the job raises while an expression is evaluated is raised again."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Stop):
            try:
                evaluate("[signal.raise_signal(signal.SIGUSR1), [None for _ in range(1000)]]")
            except Stop as stop:
                failure(stop)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(KeyboardInterrupt):
        failure(KeyboardInterrupt())


def test_names_of_the_job_are_not_added_to() -> None:
    """`eval` adds `__builtins__` to global names without them; the job's dict stays as it is."""
    names: dict[str, object] = {"value": 3}
    found: list[object] = []
    names["found"] = found
    names["frames"] = sys._getframe
    namespace = {**names, "__builtins__": {}}
    exec("def here(): found.append(frames())", namespace)
    del namespace["__builtins__"]
    namespace["here"]()  # type: ignore[operator]
    (frame,) = found
    expression = Expression.of("value + 1")
    assert expression is not None
    assert isinstance(frame, FrameType)
    assert 4 == expression.value(frame, {})
    assert "__builtins__" not in namespace


def test_gradients_are_not_recorded() -> None:
    """A tensor that an expression computes has no graph: torch saves nothing for it."""
    torch = pytest.importorskip("torch")
    loss = torch.ones(1, requires_grad=True)
    assert "tensor([2.])" == repr(evaluate("loss * 2", loss))
    assert torch.is_grad_enabled()
