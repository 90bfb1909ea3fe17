"""Facts about values of environment variables."""

import pytest

from relay_agent.settings.ranks import Unusable, flag, is_set, items, needed, number, number_or_none, parsed_json


@pytest.mark.parametrize(
    ("probe", "found"),
    [("A", True), ("B", False), ("!A", False), ("!B", True), ("!C", True), ("A*", True), ("D*", False)],
)
def test_probes(probe, found):
    """A variable counts when it has a value; "!" turns that round, and "*" stands for any rest of the name."""
    assert is_set({"A": "0", "B": ""}, probe) is found


def test_numbers():
    """A number is decimal digits, with space around them; the first of its variables that is set holds it."""
    environ = {"EMPTY": "", "A": " 7\n", "WORD": "seven", "MINUS": "-1", "ARABIC": "٧", "LONG": "1" * 10}
    assert number(environ, "NONE|EMPTY|A") == 7
    assert number(environ, "NONE") is None
    for name in ("WORD", "MINUS", "ARABIC", "LONG"):
        with pytest.raises(Unusable, match=f"^{name} is not a number$"):
            number(environ, name)
        assert number_or_none(environ, name) is None
    with pytest.raises(Unusable, match=r"^NONE is not set$"):
        needed(environ, "NONE|EMPTY")


@pytest.mark.parametrize(
    ("text", "expected"), [("False", False), ("0", False), ("TRUE", True), ("", None), ("maybe", None)]
)
def test_flags(text, expected):
    """A flag is a text: "False" is false, and a word that is neither true nor false gives None."""
    assert flag({"A": text}, "A") is expected


def test_lists():
    """Both separators count, and empty items do not."""
    assert items({"A": "10.0.0.1;10.0.0.2, 10.0.0.3,"}, "A") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_what_is_no_json(text):
    """It is refused, however deep."""
    with pytest.raises(Unusable, match=r"^A is not JSON$"):
        parsed_json({"A": text}, "A")
