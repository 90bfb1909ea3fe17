"""Facts about the exit codes."""

import inspect
import re
from pathlib import Path

from relay_core import errors, exit_codes

REFERENCE = Path(__file__).parents[3] / "docs/reference/exit-codes.md"
CODES = [code for name, code in vars(exit_codes).items() if name.isupper()]


def test_exit_codes_are_distinct() -> None:
    """A script can distinguish all outcomes."""
    assert len(CODES) == len(set(CODES))


def test_the_reference_lists_each_exit_code() -> None:
    """The table for users has one row per code."""
    assert sorted(CODES) == [int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE.read_text(), re.MULTILINE)]


def test_each_error_has_a_code_of_the_table() -> None:
    """No class of errors defines a code of its own."""
    assert {kind.exit_code for _, kind in inspect.getmembers(errors, inspect.isclass)} <= set(CODES)
