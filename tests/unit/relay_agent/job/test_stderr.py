"""Facts about the lines that this library writes to the stderr of a job."""

import contextlib
import io
import os
import select
import sys

import pytest

from relay_agent.job import stderr
from relay_agent.job.stderr import report_failure, write_line
from tests.support.jobs.processes import run_job


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


class Exiting(io.StringIO):
    def write(self, _text):
        raise SystemExit(3)


def test_a_stream_that_exits(monkeypatch):
    """A stream of the job that ends the program when it is written to does not end it because of a line."""
    monkeypatch.setattr(sys, "stderr", Exiting())
    monkeypatch.setattr(sys, "__stderr__", Exiting())
    write_line("nowhere")


async def test_number_that_a_file_of_the_job_has_got(tmp_path):
    """A line is not written into a file that the job has opened after it has closed stderr."""
    code = f"""
        import os
        from relay_agent.job.stderr import write_line
        os.close(2)
        checkpoint = open({str(tmp_path / "checkpoint")!r}, "wb", buffering=0)
        write_line("not here")
        checkpoint.write(b"weights")
        print(checkpoint.fileno(), os.path.getsize(checkpoint.name))
    """
    assert await run_job(code) == (0, ["2 7"], "")


async def test_redirected_stderr(tmp_path):
    """A line follows the stderr that the job has redirected to its log file."""
    code = f"""
        import os
        from relay_agent.job.stderr import write_line
        os.dup2(os.open({str(tmp_path / "log")!r}, os.O_WRONLY | os.O_CREAT), 2)
        write_line("here")
        print(open({str(tmp_path / "log")!r}).read())
    """
    assert await run_job(code) == (0, ["relay-agent: here", ""], "")


@pytest.mark.skipif(not hasattr(select, "poll"), reason="needs poll")
def test_full_pipe(monkeypatch):
    """A line that nobody reads is lost after a limited time, and written again once there is room."""
    monkeypatch.setattr(stderr, "WRITE_TIME", 0.05)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(65536))
    os.set_blocking(writing, True)
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "__stderr__", stream)
        write_line("lost")
        os.set_blocking(reading, False)
        assert not reader.read().strip(b"\0")
        write_line("there")
        assert reader.read() == b"relay-agent: there\n"


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
