"""Facts about what `relay-client init` prints for editors other than VS Code."""

import json

import pytest

from relay_client.editor_setup.entries import SNIPPETS, Entry

ENTRIES = [Entry("rank 0", 5678), Entry('rank 1 ("x")', 5690)]


@pytest.mark.parametrize("editor", SNIPPETS)
def test_ranks_and_ports(editor: str) -> None:
    """Every rank is there with its port."""
    text = SNIPPETS[editor](ENTRIES, "/home/alice/job")
    for port in ("5678", "5690"):
        assert port in text


def test_zed() -> None:
    """Zed's debug.json is a list of scenarios."""
    title, _, text = SNIPPETS["zed"](ENTRIES, "/home/alice/job").partition("\n")
    assert "// .zed/debug.json" == title
    assert [("Relay: rank 0", 5678), ('Relay: rank 1 ("x")', 5690)] == [
        (each["label"], each["connect"]["port"]) for each in json.loads(text)
    ]


def balanced(text: str) -> bool:
    """Return whether brackets are closed in the order in which they are opened, outside strings and comments."""
    closing, expected, quoted = {"(": ")", "[": "]", "{": "}"}, [], False
    for line in text.split("\n"):
        if line.startswith((";;", "--")):
            continue
        escaped = False
        for char in line:
            if char == '"' and not escaped:
                quoted = not quoted
            elif not quoted and char in closing:
                expected.append(closing[char])
            elif not quoted and char in ")]}" and (not expected or expected.pop() != char):
                return False
            escaped = char == "\\" and not escaped
    return not expected and not quoted


@pytest.mark.parametrize("editor", ["nvim", "emacs"])
def test_programs(editor: str) -> None:
    """Lua and Emacs Lisp have balanced brackets, and texts with quotes and backslashes are escaped."""
    text = SNIPPETS[editor](ENTRIES, 'C:\\"job"')
    assert balanced(text)
    assert ('(:localRoot "C:\\\\\\"job\\"" ' in text) == (editor == "emacs")
