"""Facts about reading JSONC: what is valid, where things are, and errors with their line."""

import pytest

from relay_client.editor_setup.jsonc import MAX_DEPTH, parse
from relay_core.errors import ConfigurationError

TEXT = """\
// The launch configurations
{
    "version": "0.2.0", /* of the schema */
    "configurations": [
        { "name": "a", },
        17, // not an object
    ],
}
"""


def test_comments_and_trailing_commas() -> None:
    """Comments and trailing commas are accepted, as VS Code accepts them."""
    assert {"version": "0.2.0", "configurations": [{"name": "a"}, 17]} == parse(TEXT, "x").data


def test_positions() -> None:
    """A node knows where its value begins and ends, and where the last thing in it ends."""
    array = parse(TEXT, "x").member("configurations")
    assert ("[", "]") == (TEXT[array.start], TEXT[array.end - 1])
    assert TEXT[: array.tail].endswith("// not an object")
    first, second = array.entries
    assert "," == TEXT[second.comma]
    assert ('{ "name": "a", }', "17") == tuple(TEXT[each.node.start : each.node.end] for each in (first, second))


def test_the_last_of_equal_names_counts() -> None:
    """Of two members with one name the last one counts, as in JavaScript and Python."""
    root = parse('{"a": 1, "a": 2}', "x")
    assert ({"a": 2}, 2) == (root.data, root.member("a").data)


@pytest.mark.parametrize("text", ["", "\ufeff", " \r\n\t", "// nothing\n/* at all */"])
def test_a_document_without_a_value(text: str) -> None:
    """Space and comments alone are a document without a root."""
    assert parse(text, "x") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{\n"a": 1\n"b": 2}', "line 3: expected a comma or '}', found '\"b\"'"),
        ('{\n"a": [1,\n2}', "line 3: expected a comma or ']', found '}'"),
        ('{"a" 1}', "line 1: expected a colon, found '1'"),
        ("{\r\n\r\na: 1}", "line 3: unexpected 'a'"),
        ("{'a': 1}", 'line 1: unexpected "\'"'),
        ("{true: 1}", "line 1: expected a name in double quotes, found 'true'"),
        ('{"a": }', "line 1: expected a value, found '}'"),
        ("{\r\r", "line 3: expected a name in double quotes, found the end of the file"),
        ("[1,,2]", "line 1: expected a value, found ','"),
        ("[01]", "line 1: expected a comma or ']', found '1'"),
        ('{"a": "b\n"}', "line 1: an unterminated string, or an invalid character in a string"),
        ('["\\x"]', "line 1: an unterminated string, or an invalid character in a string"),
        ("\n{ /* oh", "line 2: an unterminated comment"),
        ("{} {}", "line 1: expected the end of the file, found '{'"),
        ("\n" + "[" * (MAX_DEPTH + 1), f"line 2: nested more than {MAX_DEPTH} levels deep"),
        ("[" * 100_000, f"line 1: nested more than {MAX_DEPTH} levels deep"),
    ],
)
def test_a_broken_document(text: str, sentence: str) -> None:
    """What VS Code would only guess at is one sentence with the file and the line."""
    with pytest.raises(ConfigurationError) as failure:
        parse(text, "launch.json")
    assert f"launch.json, {sentence}" == failure.value.sentence
    assert "nothing has been changed" in failure.value.hint
