"""Text descriptions of the job's exceptions, and of unexpected ones in relay-debug."""

from __future__ import annotations

import os
import sys

from relay_core.errors import RelayDebugError

__all__ = ["describe_exception", "failed_import", "unexpected"]

MAX_LENGTH = 200
"""Maximum number of characters; announcements have room for little more."""
_python_directories = [
    entry
    for entry in sys.path
    if entry.startswith(os.path.dirname(os.__file__)) or "site-packages" in entry or "dist-packages" in entry  # noqa: PTH120 - pathlib costs 10 ms
]
"""The directories of the standard library and of packages; programs import this package before they change the path."""


def describe_exception(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text, in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:MAX_LENGTH] if text else type(error).__name__


def unexpected(error: Exception) -> RelayDebugError:
    """Return an exception that relay-debug did not expect as its own error."""
    return failed_import(error) or RelayDebugError(f"{type(error).__name__}: {error}")


def failed_import(error: Exception) -> RelayDebugError | None:
    """Return the reason for an exception if it is that the job has removed Python's directories from `sys.path`.

    Debugging imports most of its modules when it needs them.
    """
    if not isinstance(error, ImportError) or set(_python_directories) <= set(sys.path):
        return None
    return RelayDebugError(
        f"cannot import '{error.name}', because the job has removed Python's directories from sys.path",
        hint="keep these directories in sys.path",
    )
