"""Facts about how a typed line finds its command."""

import pytest

from relay_client.pdb.commands import COMMANDS, split


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("n", ("n", "")),
        ("  next  ", ("next", "")),
        ("b train.py:12, x == 3", ("b", "train.py:12, x == 3")),
        ("p (x)", ("p", "(x)")),
        ("p(x) + 1", ("p", "(x) + 1")),
        ("pp(x)", ("pp", "(x)")),
        ("p == 3", ("p", "== 3")),
        ("locals()", ("locals", "")),
        ("pp locals()", ("locals", "")),
        ("p locals()['x']", ("p", "locals()['x']")),
        ("?", ("help", "")),
        ("? b", ("help", "b")),
        ("x", ("", "x")),
        ("!n", ("", "n")),
        ("n = 5", ("", "n = 5")),
        ("s += 1", ("", "s += 1")),
        ("d //= 2", ("", "d //= 2")),
        ("c: int = 3", ("", "c: int = 3")),
        ("list(x)", ("", "list(x)")),
        ("a.b", ("", "a.b")),
        ("print(1)", ("", "print(1)")),
        ("", ("", "")),
    ],
)
def test_split(line, found):
    """A line is a command if its first word is one and is not given a value; anything else is Python."""
    assert split(line) == found


def test_names_of_pdb():
    """The usual names and abbreviations of pdb are there."""
    usual = "w where bt u up d down l list ll longlist n next s step r return c cont continue b break tbreak cl clear"
    usual += " p pp a args whatis j jump unt until q quit h help locals threads thread detach"
    assert set(usual.split()) <= set(COMMANDS)


def test_every_command_has_help():
    """Each command has one line of help, short enough for a terminal."""
    for one in COMMANDS.values():
        assert one.help.endswith((".", "."))
        assert len(one.help) <= 100
        assert one.usage.startswith(one.names[0])
