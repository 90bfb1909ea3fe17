"""Decides which requests the page's server answers. No I/O.

    link with the token  ----POST /session---->  session key  ----each request for data---->  allowed
    (fragment, used once)                        (memory of one browser tab)

The token is in the fragment of the link, which a browser does not send, log or pass to other pages. The key is not a
cookie, because browsers send the cookies of 127.0.0.1 to all its ports, including the ports of other users.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

MAX_SESSIONS = 16
"""Maximum number of valid session keys; if there are more, the oldest one expires."""


class PageAccess:
    """The token in the next link, and the keys of the browser tabs that have used a link.

    Args:
        port: The port on which the page is served.
        make_secret: Returns a new unguessable ASCII text.
    """

    def __init__(self, port: int, make_secret: Callable[[], str]) -> None:
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._port = port
        self._make_secret = make_secret
        self._token = make_secret()
        self._keys: list[str] = []

    @property
    def link(self) -> str:
        """The link that opens the page once."""
        return f"http://127.0.0.1:{self._port}/#{self._token}"

    def is_own_host(self, host: str | None) -> bool:
        """Return True if a `Host` header names this server; another name may have been rebound to 127.0.0.1."""
        return host in self._hosts

    def is_own_origin(self, origin: str | None) -> bool:
        """Return True if an `Origin` header names this server; browsers leave it out of many of their own requests."""
        return origin is None or origin.removeprefix("http://") in self._hosts

    def open_session(self, token: str) -> str | None:
        """Return the key for a token and replace the token; None if the token is invalid."""
        if not _are_equal(token, self._token):
            return None
        self._token = self._make_secret()
        key = self._make_secret()
        self._keys = [*self._keys, key][-MAX_SESSIONS:]
        return key

    def is_valid(self, key: str) -> bool:
        """Return True if a session has this key."""
        return any([_are_equal(key, known) for known in self._keys])  # noqa: C419 - the time must not depend on the key


def _are_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
