"""Facts about exceptions of the job as text."""

import sys

import pytest

from relay_agent.exceptions import MAX_LENGTH, describe_exception, unexpected


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("loss is nan"), "ValueError: loss is nan"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_one_line(error: BaseException, text: str) -> None:
    """It has the type, and the first line of the text if there is one."""
    assert text == describe_exception(error)


def test_a_long_text_is_cut() -> None:
    """However long the text is, the line has a limit."""
    assert MAX_LENGTH == len(describe_exception(ValueError("x" * 1000)))


@pytest.mark.parametrize("removed", ["/lib/python", None])
def test_only_missing_directories_of_python_explain_an_import(monkeypatch: pytest.MonkeyPatch, removed: str | None):
    """A program may remove the directory of its script."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path[1:] if not (removed and removed in entry)])
    error = unexpected(ModuleNotFoundError("No module named 'x'", name="x"))
    assert ("cannot import 'x', because" in error.sentence) is (removed is not None)
    assert "ValueError: y" == unexpected(ValueError("y")).sentence
