"""The address of a relay, and URLs of the Hybrid Connections protocol: listen, connect, accept and reject.

    wss://{host}/$hc/{path}?sb-hc-action=listen&sb-hc-id={guid}
    wss://{host}/$hc/{path}[/suffix][?app=1&]sb-hc-action=connect[&sb-hc-id={guid}]
    {address of the accept message}&sb-hc-statusCode=421&sb-hc-statusDescription={text}        (reject)

Tokens are sent in the `ServiceBusAuthorization` header and never in a URL, because URLs are logged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_plus, urlsplit

from relay_core.errors import ConfigurationError

TOKEN_HEADER = "ServiceBusAuthorization"  # noqa: S105 - a header's name
ALLOWED_LISTENERS_HEADER = "Microsoft-Relay-AllowedListeners"
DISALLOWED_LISTENERS_HEADER = "Microsoft-Relay-DisallowedListeners"
_PREFIX = "sb-hc-"


@dataclass(frozen=True)
class Endpoint:
    """One hybrid connection on one relay, or a family; the URLs of a family are those of its first hybrid connection.

    >>> str(Endpoint("contoso.servicebus.windows.net", 443, "myhc"))
    'sb://contoso.servicebus.windows.net/myhc'
    """

    host: str
    port: int
    path: str
    """Name of the hybrid connection; may contain `/`."""
    size: int = 1
    """Number of hybrid connections; more than 1 for a family; see `relay_core.hyco.family`."""
    family: str | None = None
    """The name of the family, if this is one of its hybrid connections."""

    @property
    def name(self) -> str:
        """The name for messages: users know only a family's name, and not which hybrid connection an agent is on."""
        return self.family or self.path

    @property
    def siblings(self) -> tuple[Endpoint, ...]:
        """The hybrid connections of this family: `alice`, `alice-1`, `alice-2`; without a family, only this one."""
        if self.size == 1:
            return (self,)
        paths = [self.path, *(f"{self.path}-{number}" for number in range(1, self.size))]
        return tuple(Endpoint(self.host, self.port, path, family=self.path) for path in paths)

    def __str__(self) -> str:
        return f"sb://{self._authority}/{self.path}"

    @property
    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 443 else f"{host}:{self.port}"

    @property
    def audience(self) -> str:
        """The resource URI that a shared access signature for this hybrid connection must name."""
        # The service ignores scheme and port; the official SDKs sign this form.
        return f"http://{self.host}/{self.path}"

    @property
    def root_url(self) -> str:
        """The relay's URL without a hybrid connection; requests to it are answered with an error status."""
        return f"wss://{self._authority}/"

    def listen_url(self, listener_id: str) -> str:
        """The control channel's URL; senders can select this listener by `listener_id`, a GUID."""
        return f"{self._base}?sb-hc-action=listen&sb-hc-id={listener_id}"

    def connect_url(self) -> str:
        """The sender's URL."""
        # Without sb-hc-id: it is optional for senders, and the relay then assigns a unique tracking id.
        return f"{self._base}?sb-hc-action=connect"

    def http_url(self, path: str = "") -> str:
        """Return the URL for HTTP requests; `path` is appended as it is, e.g. `/logs?last=10`."""
        return f"https://{self._authority}/{quote(self.path, safe='/')}{path}"

    @property
    def _base(self) -> str:
        # A name may contain "/", which separates path segments and stays unescaped.
        return f"wss://{self._authority}/$hc/{quote(self.path, safe='/')}"


def reject_url(address: str, *, status: int, reason: str) -> str:
    """Return the URL that rejects an offer: the unchanged accept address and the status for the sender.

    Args:
        address: `accept.address` as the relay sent it; it always has a query.
        status: 100-999.
        reason: HTTP reason phrase that the sender receives.
    """
    # Appended, not merged: the address is a credential, and re-encoding any part of it can invalidate it.
    return f"{address}&sb-hc-statusCode={status}&sb-hc-statusDescription={quote(reason, safe='')}"


def parse_parameters(query: str) -> dict[str, str]:
    """Return the protocol's own parameters (`sb-hc-*`) of a query string: lower-case names and decoded values.

    If a name is repeated, the first value wins.
    """
    found: dict[str, str] = {}
    for pair in query.split("&"):
        name, separator, value = pair.partition("=")
        if separator and name.lower().startswith(_PREFIX):
            # "+" means a space here: .NET encodes the space in a token that way, JavaScript as %20.
            found.setdefault(name.lower(), unquote_plus(value))
    return found


def strip_parameters(query: str) -> str:
    """Return `query` without the protocol's own parameters and otherwise unchanged."""
    # Like the service: a name without "=" belongs to the application, even if it starts with sb-hc-.
    return "&".join(pair for pair in query.split("&") if not (pair.lower().startswith(_PREFIX) and "=" in pair))


# Syntax of `--namespace`, which gives the address of a relay when a connection string is not used.
#
#     contoso                                  a namespace in the public cloud
#     contoso.servicebus.windows.net           a host name, possibly with the suffix of another cloud
#     sb://contoso.servicebus.windows.net/     a URL, as in connection strings
#     localhost:8443                           a relay-server
#
# Invalid: an empty string, a URL with a path, `contoso:port`.

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
