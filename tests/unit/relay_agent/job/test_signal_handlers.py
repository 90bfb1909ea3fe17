"""Facts about which exceptions count as those of the job's signal handlers; handlers and exceptions are hostile."""

import signal
from types import FrameType

import pytest

from relay_agent.job.signal_handlers import is_of_signal


class Stop(Exception):
    """What the handler raises."""

    def __getattribute__(self, name: str) -> object:
        raise SystemExit(f"the job's code was called for {name}")


class Handler:
    """A handler that is an object."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        raise Stop


def test_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler has raised is recognized without executing code of the handler or the exception."""

    def fail(*_: object) -> int:
        raise SystemExit("the job's code was called")

    before = signal.signal(signal.SIGUSR1, Handler())
    try:
        with pytest.raises(Stop) as caught:
            signal.raise_signal(signal.SIGUSR1)
        with monkeypatch.context() as patched:  # because `signal.signal` calls them, too
            for name in ("__eq__", "__hash__", "__getattribute__"):
                patched.setattr(Handler, name, fail)
            assert is_of_signal(caught.value)
            assert not is_of_signal(Stop())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_code_is_not_compared() -> None:
    """A function with the same code as the handler is not the handler, and their constants are not compared."""

    class Constant:
        def __eq__(self, other: object) -> bool:
            raise SystemExit("a constant was compared")

        def __hash__(self) -> int:
            return 1

    def handler(*_: object) -> None:
        raise ValueError

    handler.__code__ = handler.__code__.replace(co_consts=(*handler.__code__.co_consts, Constant()))

    def other(*_: object) -> None: ...

    other.__code__ = handler.__code__.replace(co_consts=(*handler.__code__.co_consts[:-1], Constant()))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the exception of the test
            other()
        assert not is_of_signal(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_interrupt() -> None:
    """An interrupt is always meant for the job."""
    assert is_of_signal(KeyboardInterrupt())
