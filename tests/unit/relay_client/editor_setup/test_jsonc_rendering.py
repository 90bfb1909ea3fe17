"""Facts about values written into JSONC."""

import json

import pytest

from relay_client.editor_setup.jsonc import Style, parse, render, style_of


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("", Style("    ", "\n")),
        ("{}", Style("    ", "\n")),
        ('{\n\t"a": 1\n}', Style("\t", "\n")),
        ('{\r\n  "a": 1\r\n}', Style("  ", "\r\n")),
        ('{ "a": 1,\r "b": 2 }', Style("    ", "\r")),
    ],
)
def test_the_style_of_a_file(text: str, style: Style) -> None:
    """Indentation is that of the first member if it has its own line, and line ends are those of the first line."""
    assert style == style_of(text, parse(text, "x"))


def test_short_values_stay_on_a_line() -> None:
    """A nested value that fits has one line; one that does not has a line for each entry, and no trailing comma."""
    value = {"connect": {"host": "127.0.0.1", "port": 5678}, "args": ["x" * 60, "y" * 60], "empty": [[], {}]}
    assert [
        "{",
        '  "connect": { "host": "127.0.0.1", "port": 5678 },',
        '  "args": [',
        f'    "{"x" * 60}",',
        f'    "{"y" * 60}"',
        "  ],",
        '  "empty": [[], {}]',
        "}",
    ] == render(value, "", Style("  ", "\n"), expand=True).split("\n")


@pytest.mark.parametrize("value", ['ä/\\"\n\u2028', True, None, -1.5, [], {}, [{"a": [1]}] * 40, "\udc80"])
def test_strict_parsers_read_it(value: object) -> None:
    """Whatever the value, a strict JSON parser reads it, and it can be written as UTF-8."""
    assert value == json.loads(render(value, "\t", Style("\t", "\r\n")).encode())
