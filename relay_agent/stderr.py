"""Messages of this library on the job's stderr."""

from __future__ import annotations

import sys

__all__ = ["report_failure", "write_line"]


def write_line(text: str) -> None:
    """Write a line to the job's stderr; control characters are escaped, because a part may come from a client.

    The line bypasses debugpy's redirection of stderr, which is Python code that a developer could step into. It is
    written with one call, because other ranks write to the same file; `print` makes two when Python is unbuffered.
    """
    stream = getattr(sys.stderr, "_redirect_to", [sys.stderr])[0]
    if stream is not None:
        # As `relay_core.values.escape_controls`, which a developer could step into.
        line = "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
        stream.write(f"relay-agent: {line}\n")
        stream.flush()


def report_failure(error: object) -> None:
    """Write an error in debugging to stderr, and that the job continues."""
    write_line(f"error: {error}")
    write_line("continuing without a debugger")
