"""Facts about the screen without a terminal; see tests/integration/test_pdb.py for one."""

import io

import pytest

from relay_client.pdb.debugger import MAX_UNFINISHED, Screen


@pytest.fixture
def typed(monkeypatch):
    """Let stdin hold these lines."""

    def lines(*texts):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{text}\n" for text in texts)))
        return Screen()

    return lines


def test_lines_of_a_script(typed, capfd):
    """Lines come from stdin, without a prompt, until they end."""
    screen = typed("one", "")
    assert [screen.ask("(prompt) "), screen.ask("(prompt) ")] == ["one", ""]
    with pytest.raises(EOFError):
        screen.ask("(prompt) ")
    assert capfd.readouterr().out == ""


def test_output_is_shown_by_lines(typed, capfd):
    """Output that comes in pieces is shown when a line, or a progress bar's turn, is complete."""
    screen = typed()
    screen.show_output("a")
    assert capfd.readouterr().out == ""
    screen.show_output("b\nc")
    assert capfd.readouterr().out == "ab\n"
    screen.show_output(" 50%\r")
    assert capfd.readouterr().out == "c 50%\r"
    screen.show_output("rest")
    screen.show("> place")
    assert capfd.readouterr().out == "rest\n> place\n"


def test_output_without_line_breaks(typed, capfd):
    """Output without a line break is shown in pieces, so that it takes neither memory nor time for more than one."""
    screen = typed()
    for _ in range(6):
        screen.show_output("x" * (MAX_UNFINISHED // 2))
    lines = capfd.readouterr().out.splitlines()
    assert [MAX_UNFINISHED // 2 * 3] * 2 == [len(line) for line in lines]


def test_output_cannot_control_the_terminal(typed, capfd):
    """Of the escape sequences in the job's output, only colours are passed on, and they end with the output."""
    screen = typed()
    screen.show_output("\x1b[1;31mred\x1b]52;c;eA==\x07\x1b[2J\tend\n")
    assert capfd.readouterr().out == "\x1b[1;31mred\\x1b]52;c;eA==\\x07\\x1b[2J\tend\n\x1b[0m"


def test_texts_of_the_job_are_printable_lines(typed, capfd):
    """What the debugger shows of a job's values has lines and tabs, and no other control character."""
    typed().show("a\x1b[31mb\rc\n\td\udc80\u202e")
    assert capfd.readouterr().out == "a\\x1b[31mb\\rc\n\td\\udc80\\u202e\n"


def test_unfinished_line_is_shown_before_the_prompt(typed, capfd):
    """What the job has printed without a line break is shown before a line is read."""
    screen = typed("x")
    screen.show_output("no end")
    screen.ask("")
    assert capfd.readouterr().out == "no end\n"


def test_output_above_the_line_being_typed(typed, capfd):
    """While a line is read, output replaces the prompt, which is written again below."""
    screen = typed()
    screen._prompt = "(rank 0) "
    screen.show_output("output\n")
    assert capfd.readouterr().out == "\r\x1b[Koutput\n(rank 0) "


def test_screen_that_has_gone(typed, monkeypatch):
    """A terminal or pipe that is closed does not end the session."""

    class Closed(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    screen = typed()
    monkeypatch.setattr("sys.stdout", Closed())
    screen.show("nobody reads this")
