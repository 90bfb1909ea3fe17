"""Facts about edits of JSONC files: the exact bytes of an edited file."""

import pytest

from relay_client.editor_setup.jsonc import Document
from relay_core.errors import ConfigurationError

NEW = {"name": "new", "port": 5678}


def upserted(text: str, entry: dict = NEW, **options: object) -> str:
    document = Document(text, "launch.json")
    document.upsert("configurations", "name", entry, **options)
    return document.text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            '{\n  "configurations": []\n}\n',
            '{\n  "configurations": [\n    {\n      "name": "new",\n      "port": 5678\n    }\n  ]\n}\n',
            id="an empty array",
        ),
        pytest.param(
            '{\n\t"configurations": [\n\t\t{ "name": "a" } // the first\n\t\t// the end\n\t]\n}',
            '{\n\t"configurations": [\n\t\t{ "name": "a" }, // the first\n\t\t// the end\n'
            '\t\t{\n\t\t\t"name": "new",\n\t\t\t"port": 5678\n\t\t}\n\t]\n}',
            id="comments stay with their entries",
        ),
        pytest.param(
            '\ufeff{\r\n  "configurations": [\r\n    { "name": "a" },\r\n  ],\r\n}',
            '\ufeff{\r\n  "configurations": [\r\n    { "name": "a" },\r\n'
            '    {\r\n      "name": "new",\r\n      "port": 5678\r\n    },\r\n  ],\r\n}',
            id="a byte order mark, CRLF and trailing commas",
        ),
        pytest.param(
            '{ "configurations": [{ "name": "new", "port": 1 /* mine */, "cwd": "x" }] }',
            '{ "configurations": [{ "name": "new", "port": 5678 /* mine */, "cwd": "x" }] }',
            id="a value that differs",
        ),
        pytest.param(
            '{ "configurations": [{ "name": "new" /* mine */ }] }',
            '{ "configurations": [{ "name": "new", /* mine */ "port": 5678 }] }',
            id="a member that is missing, in one line",
        ),
        pytest.param(
            "// mine\n",
            '// mine\n{\n    "configurations": [{ "name": "new", "port": 5678 }]\n}\n',
            id="comments only",
        ),
    ],
)  # fmt: skip
def test_upsert(before: str, after: str) -> None:
    """An entry is added or merged as a person would do it, and every other byte stays."""
    assert after == upserted(before)
    assert after == upserted(after)


def test_members_that_are_kept() -> None:
    """A member that the user may have changed is added where it is absent, and otherwise left alone."""
    entry = {"name": "new", "justMyCode": False}
    assert '"justMyCode": true' in upserted(
        '{"configurations": [{"name": "new", "justMyCode": true}]}', entry, keep=["justMyCode"]
    )
    assert '"justMyCode": false' in upserted('{"configurations": [{"name": "new"}]}', entry, keep=["justMyCode"])


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ('["a", /* 1 */ "b", "c"]', ["a"], '["a" /* 1 */]'),
        ('[\n "a", // 1\n "b", // 2\n "c",\n]', ["a"], '[\n "a", // 1\n // 2\n]'),
        ('[\n "a", // 1\n "b" ]', ["a"], '[\n "a" // 1\n ]'),
        ('["a" /* 1 */ , "b" /* 2 */ ,]', [], "[ /* 1 */  /* 2 */ ]"),
        ('["a", "b"]', ["b", "c", "d"], '["b", "c", "d"]'),
        ("[]", ["a"], '[\n    "a"\n]'),
    ],
)
def test_lists(before: str, wanted: list[str], after: str) -> None:
    """A list gets the wanted elements, one by one, and keeps the comments between them."""
    document = Document(f'{{"configurations": [{{"name": "n", "args": {before}}}]}}', "x")
    document.upsert("configurations", "name", {"name": "n", "args": wanted})
    assert f'{{"configurations": [{{"name": "n", "args": {after}}}]}}' == document.text()


def test_change() -> None:
    """A member of the wanted objects is replaced alone; nothing happens without the array."""
    document = Document('{"a": [{"type": "python", // old\n}, {"type": "node"}]}', "x")
    for array in ("a", "b"):
        document.change(array, lambda entry: entry["type"] == "python", {"type": "debugpy"})
    assert '{"a": [{"type": "debugpy", // old\n}, {"type": "node"}]}' == document.text()


def test_defaults_of_the_root() -> None:
    """A member of the root is added where it is absent; one that exists stays."""
    document = Document('{"version": "0.1.0"}', "x")
    document.set_default("version", "0.2.0")
    document.set_default("inputs", [])
    assert '{"version": "0.1.0", "inputs": []}' == document.text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "line 1: the root is a list, expected an object"),
        ('{\n"configurations": {}}', "line 2: 'configurations' is an object, expected a list"),
        ('{"configurations": [{"name": "new",\n\n"port": [1]}]}', "line 3: 'port' is a list, expected a single value"),
    ],
)
def test_values_of_another_kind(text: str, sentence: str) -> None:
    """A container in the place of something else is not replaced: there may be comments in it."""
    with pytest.raises(ConfigurationError) as failure:
        upserted(text)
    assert f"launch.json, {sentence}" == failure.value.sentence
