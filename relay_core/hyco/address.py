"""Addresses of the hybrid connection protocol: the URLs of listen, connect, accept and reject, and how to read them.

    wss://{host}/$hc/{path}?sb-hc-action=listen&sb-hc-id={guid}
    wss://{host}/$hc/{path}[/suffix][?app=1&]sb-hc-action=connect[&sb-hc-id={guid}]
    {address of the accept message}&sb-hc-statusCode=421&sb-hc-statusDescription={text}        (reject)

Tokens travel in the `ServiceBusAuthorization` header, never in a URL: URLs end up in logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote_plus

__all__ = [
    "ALLOWED_LISTENERS_HEADER",
    "DISALLOWED_LISTENERS_HEADER",
    "TOKEN_HEADER",
    "Endpoint",
    "parse_parameters",
    "reject_url",
    "strip_parameters",
]

TOKEN_HEADER = "ServiceBusAuthorization"  # noqa: S105 - a header's name
ALLOWED_LISTENERS_HEADER = "Microsoft-Relay-AllowedListeners"
DISALLOWED_LISTENERS_HEADER = "Microsoft-Relay-DisallowedListeners"
_PREFIX = "sb-hc-"


@dataclass(frozen=True)
class Endpoint:
    """One hybrid connection on one relay.

    >>> str(Endpoint("contoso.servicebus.windows.net", 443, "myhc"))
    'sb://contoso.servicebus.windows.net/myhc'
    """

    host: str
    port: int
    path: str
    """Name of the hybrid connection; may contain `/`."""

    def __str__(self) -> str:
        return f"sb://{self._authority}/{self.path}"

    @property
    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 443 else f"{host}:{self.port}"

    @property
    def audience(self) -> str:
        """The resource URI that a shared access signature for this hybrid connection names."""
        return f"http://{self.host}/{self.path}"

    def listen_url(self, listener_id: str) -> str:
        """The control channel's URL; `listener_id` is a GUID and names this listener to senders."""
        return f"{self._base}?sb-hc-action=listen&sb-hc-id={listener_id}"

    def connect_url(self) -> str:
        """The sender's URL. It carries no id: the relay makes a better one."""
        return f"{self._base}?sb-hc-action=connect"

    @property
    def _base(self) -> str:
        return f"wss://{self._authority}/$hc/{quote(self.path, safe='/')}"


def reject_url(address: str, *, status: int, reason: str) -> str:
    """The URL that refuses an offer: the accept address, verbatim, and the status for the sender.

    Args:
        address: `accept.address` as the relay sent it; it always has a query.
        status: 100-999.
        reason: Becomes the sender's HTTP reason phrase.
    """
    return f"{address}&sb-hc-statusCode={status}&sb-hc-statusDescription={quote(reason, safe='')}"


def parse_parameters(query: str) -> dict[str, str]:
    """Return the protocol's own parameters (`sb-hc-*`) of a query string, names in lower case, values decoded.

    Decodes `+` as a blank: .NET encodes the blank of a token so, JavaScript as `%20`. The first of a repeated name
    wins.
    """
    found: dict[str, str] = {}
    for pair in query.split("&"):
        name, separator, value = pair.partition("=")
        if separator and name.lower().startswith(_PREFIX):
            found.setdefault(name.lower(), unquote_plus(value))
    return found


def strip_parameters(query: str) -> str:
    """Return `query` without the protocol's own parameters; every other byte stays as it was, in order.

    A name without `=` is the application's, even if it starts with `sb-hc-` (so the service does it).
    """
    return "&".join(pair for pair in query.split("&") if not (pair.lower().startswith(_PREFIX) and "=" in pair))
