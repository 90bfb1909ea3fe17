"""Facts about the exit codes."""

import inspect
import re
from pathlib import Path

from relay_core import errors, exit_codes

REFERENCE = Path(__file__).parents[3] / "docs/reference/exit-codes.md"
OUTCOMES = [code for name, code in vars(exit_codes).items() if name.isupper()]
CODES = [kind.exit_code for _, kind in inspect.getmembers(errors, inspect.isclass) if "exit_code" in vars(kind)]
ERRORS = {*CODES}


def test_exit_codes_are_distinct() -> None:
    """A script can distinguish all outcomes; two of them are errors in some commands, and results in others."""
    assert len(OUTCOMES) == len(set(OUTCOMES))
    assert sorted(ERRORS) == sorted(CODES)
    assert {exit_codes.NO_VALUE, exit_codes.INTERRUPTED} == ERRORS & {*OUTCOMES}


def test_the_reference_lists_each_exit_code() -> None:
    """The table for users has one row per code."""
    rows = re.findall(r"^\| (\d+) \|", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(ERRORS | {*OUTCOMES}) == [int(code) for code in rows]
