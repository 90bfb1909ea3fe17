"""Facts about texts from elsewhere: what comes out of the rule for each sink."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.foreign import (
    MAX_TEXT,
    configuration_name,
    console_output,
    escape_controls,
    failure,
    has_variable,
    notification,
    printable,
    short_name,
)
from tests.support.data.hostile_texts import HOSTILE_TEXTS, links_in, sequences_in

ALL = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)


@ALL
def test_configuration_name(text: str) -> None:
    """The name of a child's session consists of letters, digits and ` .:()-`, whatever the own name is."""
    assert re.fullmatch(r"[\w .:()-]{1,80}", configuration_name(text, 2**32))


def test_ordinary_configuration_name() -> None:
    """An ordinary name stays; a session without a name has one, too."""
    assert "Relay: rank 0 (node-1): child 7" == configuration_name("Relay: rank 0 (node-1)", 7)
    assert "debug session: child 7" == configuration_name(None, 7)


@ALL
def test_notification(text: str) -> None:
    """A notification is one printable line without a link."""
    shown = notification(text)
    assert shown.isprintable()
    assert [] == links_in(shown)


@ALL
def test_failure(text: str) -> None:
    """A reason of several lines has no link and no control character but tabs and line ends."""
    shown = failure(text)
    assert [] == links_in(shown)
    assert shown.replace("\n", "").replace("\t", "").isprintable()


def test_traceback() -> None:
    """A traceback keeps its lines and their indentation."""
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n\tx[0]\nKeyError: 0'
    assert text == failure(text)


@ALL
def test_console_output(text: str) -> None:
    """Output for the debug console has no escape sequence but colors, and no override of the text direction."""
    shown = console_output(text)
    assert [] == sequences_in(shown)
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(shown)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m \x1b[1;38;5;208mbold\x1b[m\n",
        " 10%|#     | 1/10\r 20%|##    | 2/10\r\n",
        "a\tb\n\u05e9\u05dc\u05d5\u05dd \u200f \u00e9 \U0001f600\n",
        "the rest follows\x1b[38;5",
    ],
)
def test_ordinary_output(text: str) -> None:
    """Colors, lines, progress bars and letters of all scripts stay, also a color that continues in the next text."""
    assert text == console_output(text)


def test_removed_sequences() -> None:
    """A hyperlink, a title and a cursor movement leave only the text that was to be seen."""
    text = "a\x1b]8;;command:x\x07b\x1b]8;;\x07c\x1b]0;t\x1b\\d\x1b[Ae\n"
    assert "abcde\n" == console_output(text)


@ALL
def test_terminal(text: str) -> None:
    """What goes to a terminal or a log is one printable line."""
    assert escape_controls(text).isprintable()


@ALL
def test_name(text: str) -> None:
    """A name is printable and short."""
    assert short_name(text).isprintable()
    assert len(short_name(text)) <= 64


def test_variables() -> None:
    """A variable is found in keys and texts, at any depth."""
    assert has_variable({"a": [{"b": ["x ${env:HOME}"]}]})
    assert has_variable({"a": {"${command:x}": 1}})
    assert not has_variable({"a": ["$HOME", "{x}", 1, None, True]})


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """The rules hold for any text."""
    assert [] == links_in(notification(text)) + links_in(failure(text))
    assert [] == sequences_in(console_output(text))


@given(st.text(max_size=2000))
def test_any_text_becomes_one_safe_line(text: str) -> None:
    """Any text becomes one printable line of limited length."""
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= MAX_TEXT


def test_terminal_escapes_are_removed() -> None:
    """Control codes and line breaks become spaces."""
    assert "ValueError: [31mbad value" == printable("ValueError:\n\x1b[31mbad  value\n")


def test_other_values_are_empty() -> None:
    """Numbers, lists and null become an empty text."""
    assert ["", "", ""] == [printable(None), printable(5), printable(["a"])]
