"""Tokens for the relay: the interface of their providers, and shared access signatures (SAS)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from relay_core.errors import ProtocolError
from relay_core.hyco.address import Endpoint

# Tokens for the relay, and the interface of their providers.


@dataclass(frozen=True)
class Token:
    """A token as it is sent to the relay; `repr()` omits its value."""

    value: str = field(repr=False)
    """A shared access signature or a raw JWT; "" for an anonymous sender."""
    expires_at: float | None
    """Unix seconds; None if it does not expire."""


class Credential(Protocol):
    """A provider of tokens for listening or sending."""

    @property
    def role_grace(self) -> float:
        """Seconds for which a refusal by the relay may be temporary, because a role may be new; 0 for keys."""

    async def token(self, endpoint: Endpoint) -> Token:
        """Return a currently valid token for `endpoint`.

        Raises:
            RelayDebugError: No token is available. The message gives the reason.
        """

    def refused(self) -> None:
        """Record that the relay refused the last token; `token` then returns a new one, if possible."""


# Shared access signatures (SAS): creating, parsing and verifying tokens.
#
#     SharedAccessSignature sr=<R>&sig=<S>&se=<E>&skn=<K>
#
# R is the percent-encoded resource URI, E the expiry in Unix seconds, K the rule's name, and S the percent-encoded
# base64 of HMAC-SHA256(key, R + "\n" + E).

_SCHEME = "SharedAccessSignature "


def mint(resource_uri: str, *, key_name: str, key: str, expires_at: int) -> str:
    """Return a signed token for `resource_uri` and all paths below it.

    Args:
        resource_uri: e.g. `http://contoso.servicebus.windows.net/myhc`; the service ignores the scheme.
        key_name: Name of the authorization rule.
        key: The rule's primary or secondary key, as text.
        expires_at: Unix seconds.
    """
    # The signature covers the encoded form, in which the slashes are encoded too.
    resource = quote(resource_uri, safe="")
    signature = quote(_sign(resource, str(expires_at), key), safe="")
    return f"{_SCHEME}sr={resource}&sig={signature}&se={expires_at}&skn={quote(key_name, safe='')}"


def _sign(resource: str, expiry: str, key: str) -> str:
    # The key's text is the HMAC key. It looks like base64, but must not be decoded.
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


@dataclass(frozen=True)
class SasToken:
    """A received token; `repr()` omits the signature."""

    resource: str
    """`sr` as received, still percent-encoded. The signature covers these characters, and clients differ in encoding
    and case, so it must not be re-encoded or lower-cased."""
    signature: str = field(repr=False)
    """Base64, without the token's percent-encoding."""
    expiry: str
    """`se` as received; the signature covers these characters."""
    key_name: str

    @property
    def expires_at(self) -> int:
        """Expiry in Unix seconds."""
        return int(self.expiry)

    @classmethod
    def parse(cls, text: str) -> SasToken:
        """Parse a token; fields may come in any order, and their names are case-insensitive.

        Raises:
            ProtocolError: The text is not a shared access signature. The message does not quote it.
        """
        if not text[: len(_SCHEME)].lower() == _SCHEME.lower():
            raise ProtocolError("the token is not a shared access signature")
        pairs = (pair.partition("=") for pair in text[len(_SCHEME) :].split("&"))
        fields = {name.lower(): value for name, _, value in pairs}
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
        if missing:
            raise ProtocolError(f"the token has no '{missing[0]}'")
        expiry = fields["se"]
        # Checked as text, because the signature covers the text, and int() accepts spaces, signs and other digits.
        if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12):
            raise ProtocolError("the token's 'se' is not a time in Unix seconds")
        # A base64 signature may contain "+", so that only the rule's name is decoded with "+" as a space.
        return cls(fields["sr"], unquote(fields["sig"]), expiry, unquote_plus(fields["skn"]))

    def is_signed_with(self, key: str) -> bool:
        """Return True if the signature was created with `key`; takes constant time."""
        return hmac.compare_digest(_sign(self.resource, self.expiry, key).encode(), self.signature.encode())

    def covers(self, *, host: str, path: str) -> bool:
        """Return True if the token's audience includes the hybrid connection `path` on `host`.

        Scheme, port, query, trailing slash and case are ignored. The audience's path may be empty, equal to the hybrid
        connection's, above it or below it, on segment boundaries.
        """
        # The official clients differ in all of these (sb:// or http://, a deeper path with a query in Java, ...).
        text = unquote(self.resource)
        try:
            url = urlsplit(text if "://" in text else f"sb://{text}")
            named = (url.hostname or "").lower()
        except ValueError:
            return False
        # Compared by segment, because a token for `my` must not cover `myhc`.
        own, asked = _segments(path), _segments(unquote(url.path))
        shared = min(len(own), len(asked))
        return named == host.lower() and own[:shared] == asked[:shared]


def _segments(path: str) -> list[str]:
    return [segment for segment in path.lower().split("/") if segment]
