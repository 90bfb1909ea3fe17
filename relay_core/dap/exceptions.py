"""What debugpy reports about the exception at which a process has stopped, in its `stopped` event.

    text           the type, and debugpy's note: "ValueError       (note: full exception trace is shown but ...)"
    description    the message

VS Code shows the description in place of the session's name, so a long message would hide which rank has stopped. The
editor therefore receives the event in this form, and both forms are understood:

    text           "ValueError: no"
    description    "ValueError"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relay_core.dap.messages import Arguments, Body

__all__ = ["StopException", "exception_of", "stops_only_at_uncaught", "with_short_description"]

UNCAUGHT = "uncaught"
"""debugpy's filter for exceptions that no code catches."""
_NOTE = " (note: "


class StopException(NamedTuple):
    """An exception at which a process has stopped."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def exception_of(body: Mapping[str, object]) -> StopException | None:
    """Return the exception in the body of a `stopped` event; None if the process has stopped for another reason."""
    if body.get("reason") != "exception":
        return None
    text, description = (each if isinstance(each, str) else "" for each in (body.get("text"), body.get("description")))
    if description and text.startswith(f"{description}: "):
        return StopException(description, text[len(description) + 2 :])
    return StopException(text.partition(_NOTE)[0].strip() or "exception", description)


def with_short_description(body: Body) -> Body:
    """Return the body of a `stopped` event, in the editor's form if it contains an exception."""
    found = exception_of(body)
    return body if found is None else {**body, "description": found.name, "text": str(found)}


def stops_only_at_uncaught(arguments: Arguments) -> bool:
    """Return whether a process stops only at uncaught exceptions after a `setExceptionBreakpoints` request."""
    names, options = arguments.get("filters"), arguments.get("filterOptions")
    chosen = [*names] if isinstance(names, list) else []
    chosen += [each.get("filterId") for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    return bool(chosen) and all(each == UNCAUGHT for each in chosen)
