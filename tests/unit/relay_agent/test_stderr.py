"""Facts about the lines that this library writes to the stderr of a job."""

import io
import sys

import pytest

from relay_agent.stderr import report_failure, write_line


def test_a_line(capfd):
    """It names its author, and goes to stderr."""
    report_failure("no relay")
    assert (
        "",
        "relay-agent: error: no relay\nrelay-agent: continuing without a debugger\n",
    ) == capfd.readouterr()


def test_in_one_piece(monkeypatch):
    """Lines of several ranks, written to one terminal, do not mix."""
    written = []

    class Pieces(io.StringIO):
        def write(self, text):
            written.append(text)

    monkeypatch.setattr(sys, "stderr", Pieces())
    write_line("one")
    write_line("two")
    assert ["relay-agent: one\n", "relay-agent: two\n"] == written


def test_no_stderr(monkeypatch):
    """A process without stderr, such as one of pythonw or a daemon, is not disturbed."""
    monkeypatch.setattr(sys, "stderr", None)
    write_line("no stderr")


class Broken(io.StringIO):
    def write(self, _text):
        raise OSError(28, "No space left on device")


class Closed(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO())
        self.close()


@pytest.mark.parametrize("stream", [Broken(), Closed(), object()], ids=["broken", "closed", "not a stream"])
def test_a_stream_that_takes_nothing(monkeypatch, capfd, stream):
    """What the job has broken neither ends a thread of the job nor hides the line from its log."""
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setattr(sys, "stderr", stream)
    write_line("there")
    monkeypatch.setattr(sys, "__stderr__", stream)
    write_line("nowhere")
    assert "relay-agent: there\n" == capfd.readouterr().err


def test_past_a_debugger(monkeypatch, capfd):
    """Where pydevd has put its own stream before the job's, the line goes to the job's."""

    class Redirected:
        _redirect_to = (sys.stderr, None)

        def write(self, _text):
            raise AssertionError("a developer could step into this")

    monkeypatch.setattr(sys, "stderr", Redirected())
    write_line("there")
    monkeypatch.undo()
    assert capfd.readouterr().err == "relay-agent: there\n"


def test_past_what_collects_stderr(monkeypatch, capfd):
    """A line written while stderr is collected, as by torch's excepthook, is in the log at once."""
    collected = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setattr(sys, "stderr", collected)
    write_line("there")
    assert (capfd.readouterr().err, collected.getvalue()) == ("relay-agent: there\n", "")
