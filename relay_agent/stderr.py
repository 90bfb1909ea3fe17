"""Messages of this library on the job's stderr."""

from __future__ import annotations

import io
import sys

__all__ = ["report_failure", "write_line"]


def write_line(text: str) -> None:
    """Write a line to the job's stderr; control characters are escaped, because clients may supply part of the text.

    The line bypasses debugpy's redirection of stderr, which is Python code that a developer could step into. It is
    written with one call, because other ranks write to the same file; `print` makes two calls when Python is
    unbuffered.

    While something collects what is written to stderr, as torch does during an uncaught exception, the line goes to the
    process's own stderr: what is collected may be shown much later, or never. It also goes there if the job's stream
    does not take it. If that fails, too, the line is lost, because nothing here may end the job.
    """
    stream = getattr(sys.stderr, "_redirect_to", [sys.stderr])[0]
    # As `relay_core.value_parsers.escape_controls`, which a developer could step into.
    line = "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
    for candidate in (None if type(stream) is io.StringIO else stream, sys.__stderr__):
        if candidate is not None:
            try:
                candidate.write(f"relay-agent: {line}\n")
                candidate.flush()
            except Exception:  # noqa: BLE001, S112 - whatever the job has put there or closed; the disk may be full
                continue
            return


def report_failure(error: object) -> None:
    """Report an error in debugging on stderr, and that the job continues without a debugger."""
    write_line(f"error: {error}")
    write_line("continuing without a debugger")
