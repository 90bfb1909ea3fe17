"""Facts about the errors that users meet."""

import inspect
import re

import pytest

from relay_core import errors
from relay_core.errors import MAX_SENTENCE, NoListener, RelayDebugError, UsageError

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass)]


def test_exit_codes_are_those_of_the_table() -> None:
    """The tree in the module's docstring names every class with its exit code."""
    table = re.findall(r"(\w+) +(\d+)  +\S", errors.__doc__)
    assert {name: int(code) for name, code in table} == {each.__name__: each.exit_code for each in CLASSES}


def test_exit_codes_differ() -> None:
    """A script can distinguish each kind of failure from the others, and from Ctrl-C, the cause of one of them."""
    codes = [each.exit_code for each in CLASSES if each is not errors.Interrupted]
    assert sorted({*codes} - {0, 130}) == sorted(codes)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NoListener("nobody listens on 'myhc'"), "nobody listens on 'myhc'"),
        (UsageError("--port is for one rank", hint="leave it out"), "--port is for one rank. hint: leave it out"),
    ],
)
def test_text_of_an_error(error: RelayDebugError, text: str) -> None:
    """The sentence, and behind it the hint if there is one."""
    assert text == str(error)


def test_long_sentence() -> None:
    """A sentence that quotes a name of any length is shortened, and its hint is not."""
    error = UsageError(f"rule '{'x' * 100_000}' has no rights", hint="add rights")
    assert error.sentence.startswith("rule 'xxx")
    assert str(error).endswith("xxx' has no rights. hint: add rights")
    assert len(error.sentence) <= MAX_SENTENCE + len("...")
