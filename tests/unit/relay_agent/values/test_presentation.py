"""Facts about which values are described, and those that a job registers."""

import subprocess
import sys

import numpy as np
import pytest

import relay_agent
from relay_agent.values import presentation
from relay_agent.values.presentation import describe


class Batch:
    """What a job may have."""

    def __init__(self, size: int) -> None:
        self.size = size


class LargeBatch(Batch):
    """A subclass of it."""


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of a test end with it."""
    monkeypatch.setattr(presentation, "_registered", {})


@pytest.mark.parametrize("kind", [Batch, f"{Batch.__module__}.Batch"])
def test_registered_type(kind: type | str):
    """A type can be registered as an object or by name, and its subclasses are shown likewise."""
    relay_agent.present(kind, lambda batch: f"{batch.size} samples")
    assert "8 samples" == describe(Batch(8))
    assert "9 samples" == describe(LargeBatch(9))


def test_nearest_registration():
    """A subclass that is registered itself is shown by its own function."""
    relay_agent.present(Batch, lambda _: "batch")
    relay_agent.present(LargeBatch, lambda _: "large")
    assert ("batch", "large") == (describe(Batch(1)), describe(LargeBatch(1)))


def test_failing_function():
    """If a registered function fails, the value is shown by its `repr`."""
    relay_agent.present(Batch, lambda batch: batch.missing)
    assert describe(Batch(8)) is None


def test_long_text():
    """A long text is cut."""
    relay_agent.present(Batch, lambda _: "x" * 5000)
    assert 1000 == len(describe(Batch(8)) or "")


def test_subclass_of_a_library():
    """A job's subclass of an array is described under its own name."""

    class Image(np.ndarray):
        pass

    assert "Image[2, 2] float64" == describe(np.zeros((2, 2)).view(Image))


def test_nothing_is_imported():
    """Describing values imports none of the libraries that it knows."""
    code = (
        "import sys; from relay_agent.values.presentation import describe; describe(object()); describe([1]); "
        "print(sorted({'torch', 'numpy', 'pandas', 'polars', 'jax'} & set(sys.modules)))"
    )
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nobody_debugs():
    """A job that registers but is not debugged loads nothing of this."""
    code = (
        "import sys, relay_agent, relay_agent.debuggee.process, relay_agent.node.in_job.client; "
        "heavy = ('relay_agent.values', 'relay_agent.stacks.evaluation'); "
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
