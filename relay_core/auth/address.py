"""A relay's namespace as users write it, where no connection string has an Endpoint.

    contoso                                  the namespace of that name in the public cloud
    contoso.servicebus.windows.net           or in another cloud, with its suffix
    sb://contoso.servicebus.windows.net/     as connection strings write it
    localhost:8443                           a relay-server

Bad examples: an empty text, a URL with a path, `contoso:port`.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from relay_core.errors import ConfigurationError

__all__ = ["PUBLIC_SUFFIX", "parse_namespace"]

PUBLIC_SUFFIX = ".servicebus.windows.net"
_BARE_NAME = re.compile(r"[a-z][0-9a-z-]{4,48}[0-9a-z]", re.IGNORECASE)
"""What Azure allows: 6 to 50 characters."""


def parse_namespace(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        ConfigurationError: it is none of the above.
    """
    text = text.strip()
    if _BARE_NAME.fullmatch(text) and text.lower() != "localhost":
        return f"{text.lower()}{PUBLIC_SUFFIX}", 443
    try:
        url = urlsplit(text if "://" in text else f"sb://{text}")
        host, port = url.hostname, url.port
        usable = bool(host) and port != 0 and url.path in {"", "/"} and not (url.query or url.username)
    except ValueError:
        host, port, usable = None, None, False
    if not host or not usable:
        raise ConfigurationError(
            f"'{text[:60]}' is no namespace", hint=f"use its host name, as in contoso{PUBLIC_SUFFIX}"
        )
    return host, port or 443
