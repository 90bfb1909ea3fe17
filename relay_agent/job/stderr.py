"""Messages of this library on the job's stderr, and text descriptions of exceptions."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any

from relay_agent.job.own_descriptor import STDERR
from relay_core.errors import RelayDebugError

WRITE_TIME = 1
"""Seconds that a line waits for the reader of a full pipe."""


def write_line(text: str) -> None:
    """Write a line to the job's stderr; control characters are escaped, because clients may supply part of the text.

    The line bypasses debugpy's redirection of stderr, which is Python code that a developer could step into. It is
    written with one call, because other ranks write to the same file; `print` makes two calls when Python is
    unbuffered.

    While something collects what is written to stderr, as torch does during an uncaught exception, the line goes to the
    process's own stderr: what is collected may be shown much later, or never. It also goes there if the job's stream
    does not take it. If that fails, too, or would take long, the line is lost, because nothing here may end the job or
    block it.
    """
    stream = getattr(sys.stderr, "_redirect_to", [sys.stderr])[0]
    # As `relay_core.foreign.escape_controls`, which a developer could step into.
    line = "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
    for candidate in (None if type(stream) is io.StringIO else stream, sys.__stderr__):
        if candidate is not None:
            try:
                if not _is_writable(candidate):
                    continue
                candidate.write(f"relay-agent: {line}\n")
                candidate.flush()
            except (Exception, SystemExit):  # noqa: BLE001, S112 - what the job has put there or closed; the disk may be full
                continue
            return


def _is_writable(stream: Any) -> bool:
    """Return whether a stream takes a line soon, and is not a file of the job that has got the number of stderr.

    A program that closes its stderr may open a file next. Python opens files that exec closes; a stderr is inherited,
    also if the program has redirected it with `os.dup2`.
    """
    try:
        number = stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return True
    if number == STDERR and not os.get_inheritable(number):
        return False
    try:
        from relay_agent.job.gevent_originals import select  # noqa: PLC0415 - it needs `threading`
    except ImportError:  # the job has removed Python's directories from `sys.path`
        return True
    if not hasattr(select, "poll"):
        return True
    waiting = select.poll()
    waiting.register(number, select.POLLOUT)
    return bool(waiting.poll(1000 * WRITE_TIME))


def report_failure(error: object) -> None:
    """Report an error in debugging on stderr, and that the job continues without a debugger."""
    write_line(f"error: {error}")
    write_line("continuing without a debugger")


# Text descriptions of the job's exceptions, and of unexpected ones in relay-debug.

MAX_LENGTH = 200
"""Maximum number of characters; announcements have room for little more."""
MAX_READ = 100_000
"""Maximum number of characters of the text, from each of its ends, that are read."""
TRACEBACK = "Traceback (most recent call last)"
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_NAMED = re.compile(r"[A-Za-z_][\w.]*: ")
"""The beginning of the last line of a traceback."""
_STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib costs 10 ms
_python_directories = [
    entry
    for entry in sys.path
    if isinstance(entry, str)  # Python leaves out a Path
    and (entry.startswith(_STANDARD_LIBRARY) or "site-packages" in entry or "dist-packages" in entry)
]
"""The directories of the standard library and of packages; programs import this package before they change the path."""


def describe_exception(error: BaseException) -> str:
    """Return the type of an exception and the beginning of its text, in one line.

    Exceptions that pass on the failure of another process contain that process's traceback (nbclient, torch): then the
    line has the first line of the text, usually a heading, and the exception in which the traceback ends.
    """
    lines = _meaningful_lines(_text(error))
    if any(TRACEBACK in line for line in lines):
        cause = next((line for line in reversed(lines) if _NAMED.match(line)), lines[-1])
        lines = [cause] if TRACEBACK in lines[0] else [lines[0], cause]
    text = ""
    for line in [type(error).__name__ + ":", *lines]:
        text += line if not text else f" {line}" if text.endswith(":") else f"; {line}"
    text = text.rstrip(":")
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."


def as_own_error(error: BaseException) -> RelayDebugError:
    """Return an exception as an error of relay-debug, which it may be already."""
    if isinstance(error, RelayDebugError):
        return error
    return failed_import(error) or RelayDebugError(f"{type(error).__name__}: {error}")


def failed_import(error: BaseException) -> RelayDebugError | None:
    """Return the reason for an exception if it is that the job has removed Python's directories from `sys.path`.

    Debugging imports most of its modules when it needs them.
    """
    if not isinstance(error, ImportError) or all(entry in sys.path for entry in _python_directories):
        return None
    return RelayDebugError(
        f"cannot import '{error.name}', because the job has removed Python's directories from sys.path",
        hint="keep these directories in sys.path",
    )


def is_of_import(request: SystemExit) -> bool:
    """Return whether a module of the job has exited that was imported because it has the name of one of Python's.

    Otherwise a signal handler of the job wants it to end, possibly during an import, or a setting does.
    """
    known = ("<frozen ", *_python_directories)
    entry = request.__traceback__
    while entry is not None:
        code, name = entry.tb_frame.f_code, str(entry.tb_frame.f_globals.get("__name__"))
        if code.co_name == "<module>" and not name.startswith("relay_") and not code.co_filename.startswith(known):
            return True
        entry = entry.tb_next
    return False


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:
        from relay_agent.job.signal_handlers import is_of_signal  # noqa: PLC0415 - for few exceptions

        if is_of_signal(raised):
            raise
        return "<exception str() failed>"  # as in Python's tracebacks


def _meaningful_lines(text: str) -> list[str]:
    """Return the lines that contain a letter or a digit, without colors and surrounding spaces."""
    if len(text) > 2 * MAX_READ:
        text = text[:MAX_READ] + text[-MAX_READ:]
    lines = [line.strip() for line in _COLOR.sub("", text).strip().splitlines()]
    return [line for line in lines if any(char.isalnum() for char in line)] or lines[:1]
