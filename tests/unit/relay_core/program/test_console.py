"""Facts about log lines and errors that contain texts of the other side."""

import json
import logging
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from relay_agent.job.stderr import write_line
from relay_core.errors import RelayDebugError
from relay_core.exit_codes import OUTPUT_CLOSED
from relay_core.program.console import configure_logging, print_error
from tests.support.machine.deadline import DEADLINE

FORGED = "alice\nrelay-client: error: forged\r\x1b[2J\x9b31m\u2028end\u202e"
ESCAPED = r"alice\nrelay-client: error: forged\r\x1b[2J\x9b31m\u2028end\u202e"


@pytest.fixture
def start_logging():
    """Return a function that configures logging as the client's command line does; the logger is restored."""
    logger = logging.getLogger("relay_client")
    before = logger.handlers[:], logger.level, logger.propagate

    def start(**options: bool) -> logging.Logger:
        configure_logging(
            "relay-client", **options
        )  # not in the setup: pytest replaces stderr before it calls the test
        return logger

    yield start
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.mark.parametrize("text", ["held by %s", "%s"])
def test_log_line_stays_one_line(start_logging, capfd, text):
    """A name with line breaks and escape sequences is one printable line of the log."""
    start_logging().info(text, FORGED)
    assert f"relay-client: {text % ESCAPED}\n" == capfd.readouterr().err


def test_times(start_logging, capfd):
    """With `has_times`, a line begins with the local date and time, which sorts and which log viewers recognize."""
    before = datetime.now().replace(microsecond=0)  # noqa: DTZ005 - local time is what the line has
    start_logging(has_times=True).warning("held")
    date, clock, rest = capfd.readouterr().err.split(" ", 2)
    assert before <= datetime.fromisoformat(f"{date} {clock}") <= before + timedelta(minutes=5)
    assert "relay-client: warning: held\n" == rest


def test_quiet(start_logging, capfd):
    """With `quiet`, events are not logged, but warnings are."""
    logger = start_logging(quiet=True)
    logger.info("ready")
    logger.warning("lost")
    assert "relay-client: warning: lost\n" == capfd.readouterr().err


def test_event_as_json_is_one_line(start_logging, capfd):
    """With `as_json`, an event is an object on one printable line, with time, level, logger and message."""
    start_logging(as_json=True).warning("held by %s", FORGED)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.isprintable()
    event = json.loads(line)
    assert abs(datetime.now(timezone.utc) - datetime.fromisoformat(event.pop("time"))) < timedelta(minutes=5)
    assert {"level": "warning", "logger": "relay_client", "message": f"held by {FORGED}"} == event


def test_event_as_json_has_the_traceback(start_logging, capfd):
    """An exception is a field of the object."""
    try:
        raise RuntimeError(FORGED)
    except RuntimeError:
        start_logging(as_json=True).exception("failed")
    event = json.loads(capfd.readouterr().err)
    assert ("error", "failed", True) == (
        event["level"],
        event["message"],
        f"RuntimeError: {FORGED}" in event["traceback"],
    )


def test_traceback_cannot_look_like_a_log_line(start_logging, capfd):
    """Each line of a traceback is indented and printable, those of the exception's message included."""
    try:
        raise RuntimeError(FORGED)
    except RuntimeError:
        start_logging().exception("failed")
    first, *others = capfd.readouterr().err.splitlines()
    assert "relay-client: error: failed" == first
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_error_stays_one_line(capfd):
    """So is the error with which a program exits, with its hint."""
    print_error("relay-client", RelayDebugError(FORGED, hint=FORGED))
    assert f"relay-client: error: {ESCAPED}. hint: {ESCAPED}\n" == capfd.readouterr().err


def test_line_in_the_log_of_the_job_stays_one_line(capfd):
    """A notice with the names that a client has sent is one printable line on the job's stderr."""
    write_line(f"port 5678 is claimed twice: {FORGED} keeps it")
    assert f"relay-agent: port 5678 is claimed twice: {ESCAPED} keeps it\n" == capfd.readouterr().err


def test_letters_of_all_languages_stay(start_logging, capfd):
    """Printable text is not changed."""
    start_logging().warning("%s", "zoë@büro 東京 \\n")
    assert "relay-client: warning: zoë@büro 東京 \\n\n" == capfd.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("print('x', flush=True)", {OUTPUT_CLOSED}),
        ("print('x'); return 3", {3, OUTPUT_CLOSED}),
        ("print('x'); raise SystemExit(3)", {3, OUTPUT_CLOSED}),
    ],
)
def test_output_that_nobody_reads(command, statuses, unbuffered):
    """If the reader of stdout has exited, as `head` does, the program exits without a traceback."""
    program = (
        "import sys; from relay_core.program.console import run_program; sys.stdin.read()\n"
        f"def main(_):\n    {command}\n"
        "sys.exit(run_program('relay-client', main))"
    )
    output, unread = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=unread,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(unread)
        os.close(output)
        _, err = process.communicate(timeout=DEADLINE)
    assert (b"", True) == (err, process.returncode in statuses)
