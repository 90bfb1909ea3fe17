"""The last lines of this program's log, kept in memory for programs that request them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from relay_client.control.messages import LogLine
from relay_core.foreign import escape_controls

MAX_LINES = 2000
"""Number of lines to keep: about one day of log lines for a job with occasional debug sessions."""
LOGGERS = ("relay_client", "relay_core")


class LogHistory(logging.Handler):
    """Keeps log lines during a `with` block.

    Args:
        on_line: Called with each new line.
    """

    def __init__(self, on_line: Callable[[LogLine], None] = lambda _line: None) -> None:
        super().__init__()
        self.on_line = on_line
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)

    def __enter__(self) -> LogHistory:
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_exc_info: object) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def last(self, count: int) -> tuple[LogLine, ...]:
        """Return the last lines, the oldest first."""
        return tuple(self._lines)[-count:] if count > 0 else ()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a record; its traceback appears only on the terminal."""
        line = LogLine(record.created, record.levelname.lower(), escape_controls(record.getMessage()))
        self._lines.append(line)
        self.on_line(line)
