"""Text descriptions of the job's exceptions."""

from __future__ import annotations

__all__ = ["describe_exception"]

MAX_LENGTH = 200
"""Maximum number of characters; announcements have room for little more."""


def describe_exception(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text, in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:MAX_LENGTH] if text else type(error).__name__
