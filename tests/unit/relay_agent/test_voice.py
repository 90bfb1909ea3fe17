"""Facts about the line that a library says in somebody else's process."""

import sys

from relay_agent.voice import say, say_it_goes_on


def test_a_line(capfd):
    """It names its author, and goes to stderr."""
    say_it_goes_on("no relay")
    assert (
        "",
        "relay-agent: error: no relay\nrelay-agent: the job goes on without a debugger\n",
    ) == capfd.readouterr()


def test_no_stderr(monkeypatch):
    """A process without stderr, such as one of pythonw or a daemon, is not disturbed."""
    monkeypatch.setattr(sys, "stderr", None)
    say("nobody hears this")


def test_past_a_debugger(monkeypatch, capfd):
    """Where pydevd has put its own stream before the job's, the line goes to the job's."""

    class Redirected:
        _redirect_to = (sys.stderr, None)

        def write(self, _text):
            raise AssertionError("a developer could step into this")

    monkeypatch.setattr(sys, "stderr", Redirected())
    say("there")
    monkeypatch.undo()
    assert capfd.readouterr().err == "relay-agent: there\n"
