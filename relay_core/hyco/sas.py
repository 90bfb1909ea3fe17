r"""Shared access signatures: minting, reading and checking tokens.

    SharedAccessSignature sr=<R>&sig=<S>&se=<E>&skn=<K>

R is the percent-encoded resource URI, E the expiry in unix seconds, K the rule's name, and S the percent-encoded
base64 of HMAC-SHA256(key, R + "\n" + E). The key is the UTF-8 text of the key, not its base64 decoding, and R is
signed exactly as it stands in the token: re-encoding or lower-casing it breaks half of the clients in use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from relay_core.errors import ProtocolError

__all__ = ["SasToken", "mint"]

_SCHEME = "SharedAccessSignature "


def mint(resource_uri: str, *, key_name: str, key: str, expires_at: int) -> str:
    """Sign a token for `resource_uri` and everything below it.

    Args:
        resource_uri: e.g. `http://contoso.servicebus.windows.net/myhc`; the service ignores the scheme.
        key_name: The authorization rule.
        key: The rule's primary or secondary key, as text.
        expires_at: Unix seconds.
    """
    resource = quote(resource_uri, safe="")
    signature = quote(_sign(resource, str(expires_at), key), safe="")
    return f"{_SCHEME}sr={resource}&sig={signature}&se={expires_at}&skn={quote(key_name, safe='')}"


def _sign(resource: str, expiry: str, key: str) -> str:
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


@dataclass(frozen=True)
class SasToken:
    """A token as it was received; `repr()` hides the signature."""

    resource: str
    """`sr` exactly as written, still percent-encoded: the signature covers these characters."""
    signature: str = field(repr=False)
    """Base64 text, decoded from the token's percent-encoding."""
    expiry: str
    """`se` exactly as written."""
    key_name: str

    @property
    def expires_at(self) -> int:
        """Unix seconds."""
        return int(self.expiry)

    @classmethod
    def parse(cls, text: str) -> SasToken:
        """Read a token; field order and the case of field names are free.

        Raises:
            ProtocolError: the text is no shared access signature. The text itself is not repeated.
        """
        if not text[: len(_SCHEME)].lower() == _SCHEME.lower():
            raise ProtocolError("the token is no shared access signature")
        fields: dict[str, str] = {}
        for pair in text[len(_SCHEME) :].split("&"):
            name, _, value = pair.partition("=")
            fields[name.lower()] = value
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
        if missing:
            raise ProtocolError(f"the token has no '{missing[0]}'")
        expiry = fields["se"]
        if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12):
            raise ProtocolError("the token's 'se' is no time in unix seconds")
        return cls(fields["sr"], unquote(fields["sig"]), expiry, unquote_plus(fields["skn"]))

    def is_signed_with(self, key: str) -> bool:
        """Whether `key` made this signature; takes the same time for every wrong answer."""
        return hmac.compare_digest(_sign(self.resource, self.expiry, key).encode(), self.signature.encode())

    def covers(self, *, host: str, path: str) -> bool:
        """Whether this token's audience includes the hybrid connection `path` on `host`.

        Clients in use write the audience with any scheme, with or without the port, a trailing slash, a deeper
        path or a query, and in either case. So scheme, port, query, slash and case are ignored; the path may be
        empty, equal to, above or below the hybrid connection's, on segment boundaries.
        """
        text = unquote(self.resource)
        try:
            url = urlsplit(text if "://" in text else f"sb://{text}")
            named = (url.hostname or "").lower()
        except ValueError:
            return False
        own, asked = _segments(path), _segments(unquote(url.path))
        shared = min(len(own), len(asked))
        return named == host.lower() and own[:shared] == asked[:shared]


def _segments(path: str) -> list[str]:
    return [segment for segment in path.lower().split("/") if segment]
