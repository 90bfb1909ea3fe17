"""Text descriptions of the job's exceptions, and of unexpected ones in relay-debug."""

from __future__ import annotations

import os
import re
import sys

from relay_core.errors import RelayDebugError

__all__ = ["describe_exception", "failed_import", "unexpected"]

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


def unexpected(error: Exception) -> RelayDebugError:
    """Return an exception that relay-debug did not expect as its own error."""
    return failed_import(error) or RelayDebugError(f"{type(error).__name__}: {error}")


def failed_import(error: Exception) -> RelayDebugError | None:
    """Return the reason for an exception if it is that the job has removed Python's directories from `sys.path`.

    Debugging imports most of its modules when it needs them.
    """
    if not isinstance(error, ImportError) or all(entry in sys.path for entry in _python_directories):
        return None
    return RelayDebugError(
        f"cannot import '{error.name}', because the job has removed Python's directories from sys.path",
        hint="keep these directories in sys.path",
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the job's `__str__` may raise anything
        return "<exception str() failed>"  # as in Python's tracebacks


def _meaningful_lines(text: str) -> list[str]:
    """Return the lines that contain a letter or a digit, without colors and surrounding spaces."""
    if len(text) > 2 * MAX_READ:
        text = text[:MAX_READ] + text[-MAX_READ:]
    lines = [line.strip() for line in _COLOR.sub("", text).strip().splitlines()]
    return [line for line in lines if any(char.isalnum() for char in line)] or lines[:1]
