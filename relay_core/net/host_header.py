"""Recognizes requests that a web page sends to a port of this machine under a host name of its own (DNS rebinding).

A page may read the responses of its own host. If the page's host name is changed to resolve to 127.0.0.1, the browser
sends such requests to a program on this machine, but still with that name in the `Host` header.
"""

from __future__ import annotations

import ipaddress

__all__ = ["FOREIGN_HOST", "is_rebound"]

FOREIGN_HOST = "unknown host name: use 127.0.0.1 or localhost\n"
"""The body of the refusal."""


def is_rebound(host: str | None, address: str) -> bool:
    """Return whether a request to a loopback address names a host with a domain; no page can have any other name.

    Args:
        host: The `Host` header; None if it is missing, as in no request of a browser.
        address: The IP address of this machine that received the request.
    """
    if host is None or not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return False
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name
    return False
