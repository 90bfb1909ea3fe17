"""Rules for HTTP headers that a relay forwards.

Both ends of a relayed request receive headers as strings from a peer. Without these checks, a line break in a value
would add headers or a second message, and a forwarded framing header would let two hops disagree about a body's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from relay_core.errors import ProtocolError

__all__ = ["check_headers", "forwardable"]

HOP_BY_HOP = frozenset(
    {
        "close",
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that concern one connection (RFC 9110, 7.6.1), or the length of a body, which each hop determines itself."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_INVALID_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the syntax of names and values (RFC 9110, 5.1 and 5.5).

    Raises:
        ProtocolError: A name is not a token, or a value contains a control character.
    """
    for name, value in headers.items():
        # Neither appears in the error: a value may be a secret, and either may contain control characters.
        if not _NAME.fullmatch(name):
            raise ProtocolError("an HTTP header has an invalid name")
        if _INVALID_IN_VALUE.search(value):
            raise ProtocolError("an HTTP header value contains a control character")


def forwardable(headers: Mapping[str, str], *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers that concern both ends.

    Args:
        headers: As received.
        without: Further names to leave out, in lower case.
    """
    # RFC 9110, 7.6.1: the Connection header names further headers that concern only one connection.
    named = (value for name, value in headers.items() if name.lower() == "connection")
    dropped = {item.strip().lower() for value in named for item in value.split(",")}
    dropped |= HOP_BY_HOP.union(without)
    return {name: value for name, value in headers.items() if name.lower() not in dropped}
