"""The registry of parsers of bytes that somebody else has sent, each as a function of one byte string.

Each function raises only if there is a defect: it suppresses the errors that its parser documents, and asserts what
holds for any input. A parser of a stream gets the input as a whole and in pieces, and must return the same both times.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

__all__ = ["KEY", "NOW", "PARSERS", "Parser", "as_json", "as_text", "documented", "in_pieces", "parser"]

Parser = Callable[[bytes], None]

MAX_SENTENCE = 2000
"""Characters of an error; it must not repeat an input of any length."""
NOW = 1_800_000_000.0
KEY = "a key of this test"
PARSERS: dict[str, Parser] = {}
"""By the name of their corpus directory."""


def parser(function: Parser) -> Parser:
    """Register a function under its name."""
    PARSERS[function.__name__] = function
    return function


@contextlib.contextmanager
def documented(*errors: type[Exception]) -> Iterator[None]:
    """Suppress errors, and check that people can read them: short, and without control characters."""
    text = ""
    try:
        yield
    except errors as error:
        text = str(error)
    assert text.isprintable(), repr(text)
    assert len(text) < MAX_SENTENCE, text


def in_pieces(data: bytes) -> list[bytes]:
    """Cut the input; its first byte is the size of the pieces."""
    size = max(1, data[0] % 64) if data else 1
    return [data[at : at + size] for at in range(0, len(data), size)]


def as_json(data: bytes) -> object:
    """Return the JSON in the input, or None."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(data)
    return None


def as_text(data: bytes) -> str:
    return data.decode(errors="replace")
