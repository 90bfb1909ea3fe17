"""Facts about exceptions of the job as text."""

import subprocess
import sys

import pytest

from relay_agent.job.stderr import MAX_LENGTH, as_own_error, describe_exception

TRACEBACK = 'Traceback (most recent call last):\n  File "model.py", line 3, in f\n    return x[7]\n'
CELL = f"""\
An error occurred while executing the following cell:
------------------
f([])
------------------


\x1b[0;31m---------------------------------------------------------------------------\x1b[0m
\x1b[0;31mIndexError\x1b[0m                                {TRACEBACK}\
\x1b[0;31mIndexError\x1b[0m: list index out of range
"""
PROCESS = f"\n\n-- Process 0 terminated with the following error:\n{TRACEBACK}ValueError: loss is nan\n"
FIELDS = "1 validation error for Model\nwidth\n  Input should be a valid integer [type=int_parsing]\n    more"


class Unprintable(Exception):
    def __str__(self) -> str:
        return self.args[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("loss is nan"), "ValueError: loss is nan"),
        (ValueError("\n first\n----\nsecond"), "ValueError: first; second"),
        (ValueError("Error(s) in loading:\n\tMissing keys"), "ValueError: Error(s) in loading: Missing keys"),
        (ValueError("failed:"), "ValueError: failed"),
        (ValueError(" ?\n--"), "ValueError: ?"),
        (ValueError(TRACEBACK + "KeyError: 'a'\n"), "ValueError: KeyError: 'a'"),
        (
            RuntimeError(CELL),
            "RuntimeError: An error occurred while executing the following cell: IndexError: list index out of range",
        ),
        (
            RuntimeError(PROCESS),
            "RuntimeError: -- Process 0 terminated with the following error: ValueError: loss is nan",
        ),
        (
            ValueError(FIELDS),
            "ValueError: 1 validation error for Model; width; Input should be a valid integer [type=int_parsing]; more",
        ),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Unprintable(7), "Unprintable: <exception str() failed>"),
    ],
)
def test_one_line(error: BaseException, text: str) -> None:
    """It has the type and the lines of the text; of a traceback in the text, only the exception."""
    assert text == describe_exception(error)


def test_a_long_text_is_cut() -> None:
    """However long the text is, the line has a limit, and its end shows that something is missing."""
    found = describe_exception(ValueError("x" * 1_000_000))
    assert (MAX_LENGTH, "x...") == (len(found), found[-4:])


@pytest.mark.parametrize("removed", ["/lib/python", None])
def test_only_missing_directories_of_python_explain_an_import(monkeypatch: pytest.MonkeyPatch, removed: str | None):
    """A program may remove the directory of its script."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path[1:] if not (removed and removed in entry)])
    error = as_own_error(ModuleNotFoundError("No module named 'x'", name="x"))
    assert ("cannot import 'x', because" in error.sentence) is (removed is not None)
    assert "ValueError: y" == as_own_error(ValueError("y")).sentence


def test_paths_of_other_types_in_the_path_of_python() -> None:
    """A program that has a Path in `sys.path`, which Python leaves out, can import this package."""
    code = "import sys, pathlib; sys.path.insert(0, pathlib.Path('src')); import relay_agent"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
