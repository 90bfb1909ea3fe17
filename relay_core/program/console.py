"""Console output of the programs: one log line per event, and one line per failure with a hint.

These lines go to stderr, flushed one by one and without colour codes, because VS Code tasks and log files receive them
too. Data goes to stdout. Messages contain text from the peer, such as names, users and reasons. Control characters are
therefore escaped here, for all messages, so that a peer can neither add a line nor control the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from relay_core.errors import RelayDebugError
from relay_core.exit_codes import INTERRUPTED, OUTPUT_CLOSED
from relay_core.foreign import escape_controls


class _LineFormatter(logging.Formatter):
    """Formats events as `program: message`, other levels as `program: warning: message`.

    The lines of a traceback are indented, because an exception's message may have several lines, and one of them could
    look like a log line of the program.
    """

    def __init__(self, program: str, *, has_times: bool = False) -> None:
        super().__init__()
        self._program = program
        self._has_times = has_times

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        time = f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')} " if self._has_times else ""
        lines = [f"{time}{self._program}: {level}{escape_controls(record.getMessage())}"]
        if record.exc_info:
            lines += [f"  {escape_controls(line)}" for line in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class _JsonFormatter(logging.Formatter):
    """Formats each event as one line of JSON, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an object with `time` (ISO 8601, UTC), `level`, `logger`, `message`, and `traceback` for an error."""
        event = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)  # escapes control characters, and letters that are not ASCII


_PACKAGES = ("relay_core", "relay_agent", "relay_client", "relay_server")


def configure_logging(
    program: str, *, verbose: bool = False, quiet: bool = False, as_json: bool = False, has_times: bool = False
) -> None:
    """Log the events of relay_* modules to stderr.

    The loggers of other libraries keep the default level WARNING: at DEBUG, `websockets` would log tokens.

    Args:
        program: Name for messages.
        verbose: Whether to log debug messages.
        quiet: Whether to log only warnings and errors.
        as_json: Whether each event is one line of JSON.
        has_times: Whether each line begins with the local date and time.
    """
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _LineFormatter(program, has_times=has_times))
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def log_errors_only() -> None:
    """Log neither events nor warnings, for commands whose output contains them."""
    for name in _PACKAGES:
        logging.getLogger(name).setLevel(logging.ERROR)


def print_error(program: str, error: RelayDebugError) -> None:
    """Print the error with which a program exits."""
    print(f"{program}: error: {escape_controls(str(error))}", file=sys.stderr, flush=True)  # noqa: T201 - errors are shown here only


def run_program(program: str, main: Callable[[list[str]], int], argv: list[str] | None = None) -> int:
    """Run `main(argv)` and return the exit status; a RelayDebugError is printed and determines the status.

    Args:
        program: Name for messages.
        main: Runs the program and returns its exit status.
        argv: Arguments without the program's name; None for those of this process.
    """
    _open_standard_streams()
    try:
        return main(sys.argv[1:] if argv is None else argv)
    except RelayDebugError as error:
        print_error(program, error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _discard_unread_output(probe="\n"):  # then the error is about another pipe or socket
            raise
        return OUTPUT_CLOSED
    finally:
        _discard_unread_output()


def _open_standard_streams() -> None:
    """Open the null device in place of each standard stream that is closed, as by `>&-` or a program without a console.

    Otherwise, the next file or socket would get the number of the stream, and with it whatever a library prints. A
    program that replaces this one (exec) finds the streams closed, as they were.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115 - for the life of the program


def _discard_unread_output(probe: str = "") -> bool:
    """Write what stdout has buffered and `probe`; if the reader has exited, discard the output and return True.

    Otherwise, the interpreter would fail to write it while it exits, and print an error.
    """
    try:
        sys.stdout.write(probe)
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return True
    except (OSError, ValueError):  # the disk is full, or stdout is closed; the interpreter reports that
        return False
    return False
