"""How the three programs speak on a terminal: one line per event, one sentence and one hint per failure.

Data goes to stdout; everything here goes to stderr, flushed line by line and without colour codes, because a
VS Code task, a job's log file and a person all read it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from relay_core.errors import RelayDebugError

__all__ = ["configure_logging", "print_error", "run_program"]


class _LineFormatter(logging.Formatter):
    """`program: message` for events, `program: warning: message` for what needs a look."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"{self._program}: {level}{record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def configure_logging(program: str, *, verbose: bool = False) -> None:
    """Send the log of relay_* modules to stderr as the program's event lines.

    Other libraries' loggers keep their WARNING default: at DEBUG, `websockets` would write tokens.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(program))
    for name in ("relay_core", "relay_agent", "relay_client", "relay_server"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        logger.propagate = False


def print_error(program: str, error: RelayDebugError) -> None:
    """Write the one line that explains why a program ends."""
    print(f"{program}: error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the border where errors are shown


def run_program(program: str, main: Callable[[list[str]], int], argv: list[str] | None = None) -> int:
    """Run `main(argv)` and return its exit status; a RelayDebugError becomes its line and its exit code.

    Args:
        program: Name for messages.
        main: The program; 0 on success.
        argv: Arguments without the program's name; None for those of this process.
    """
    try:
        return main(sys.argv[1:] if argv is None else argv)
    except RelayDebugError as error:
        print_error(program, error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
