"""Syntax of `--namespace`, which gives the address of a relay when a connection string is not used.

    contoso                                  a namespace in the public cloud
    contoso.servicebus.windows.net           a host name, possibly with the suffix of another cloud
    sb://contoso.servicebus.windows.net/     a URL, as in connection strings
    localhost:8443                           a relay-server

Invalid: an empty string, a URL with a path, `contoso:port`.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from relay_core.errors import ConfigurationError

__all__ = ["PUBLIC_SUFFIX", "parse_namespace"]

PUBLIC_SUFFIX = ".servicebus.windows.net"
_BARE_NAME = re.compile(r"[a-z][0-9a-z-]{4,48}[0-9a-z]", re.IGNORECASE)
"""Azure's rule for namespace names: 6 to 50 characters."""


def parse_namespace(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        ConfigurationError: The text has none of these forms.
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
            f"invalid namespace: '{text[:60]}'",
            hint=f"use the host name of the namespace, such as contoso{PUBLIC_SUFFIX}",
        )
    return host, port or 443
