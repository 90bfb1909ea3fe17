"""A line on the job's stderr: the only voice that a library has in somebody else's process."""

from __future__ import annotations

import sys

__all__ = ["report_failure", "say"]


def say(text: str) -> None:
    """Print a line to the job's stderr, past a debugger that reads along: a developer could step into that.

    It is written in one piece, which `print` does not do in an unbuffered Python: other ranks write there too.
    """
    stream = getattr(sys.stderr, "_redirect_to", [sys.stderr])[0]
    if stream is not None:
        stream.write(f"relay-agent: {text}\n")
        stream.flush()


def report_failure(error: object) -> None:
    """Report why this process cannot be debugged, and that it continues."""
    say(f"error: {error}")
    say("continuing without a debugger")
