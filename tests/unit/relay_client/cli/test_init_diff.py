"""Facts about the differences of files, as they are shown."""

from relay_client.cli.init import unified_diff


def test_a_diff() -> None:
    """Lines that are added and removed have their marks, and unchanged lines around them are shown."""
    shown = list(unified_diff('{\r\n\t"a": 1\r\n}', '{\r\n\t"a": 2\r\n}', "launch.json", colour=False))
    assert [
        "--- launch.json (now)",
        "+++ launch.json",
        "@@ -1,3 +1,3 @@",
        " {",
        '-   "a": 1',
        '+   "a": 2',
        " }",
    ] == shown


def test_colours() -> None:
    """On a terminal, lines that are added are green and those that are removed red."""
    shown = list(unified_diff("a\n", "b\n", "x", colour=True))
    assert ["\x1b[31m-a\x1b[0m", "\x1b[32m+b\x1b[0m"] == shown[-2:]


def test_a_file_cannot_control_the_terminal() -> None:
    """Control characters of a file are shown escaped."""
    assert '+"\\x1b[2J"' in list(unified_diff("", '"\x1b[2J"\n', "x", colour=False))


def test_equal_files() -> None:
    """Without a difference, no lines are printed."""
    assert [] == list(unified_diff("a\n", "a\n", "x", colour=True))
