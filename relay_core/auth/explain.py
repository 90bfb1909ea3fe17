"""Output of `--explain-auth`: all credential sources in order, what was found, and which one is used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from relay_core.auth.entra import LONGEST_VALIDITY, EntraCredential
from relay_core.auth.find_access import Access, Search
from relay_core.auth.sources import Source, choose, in_order
from relay_core.errors import RelayDebugError
from relay_core.hyco.sas import Token

__all__ = ["explain_access"]

T = TypeVar("T")

_CREDENTIALS_TITLE = "credential sources (the first match is used):"
_TUNNEL_KEY_TITLE = "tunnel key sources (the first match is used):"


async def explain_access(search: Search) -> tuple[list[str], RelayDebugError | None]:
    """Return the lines to print and the error with which a program would fail, or None.

    The source in use is read, which includes requests to Key Vault and Entra ID. The lines contain no secrets.
    """
    accesses = search.access_sources()
    source = choose(accesses)
    if source is None:
        return [_CREDENTIALS_TITLE, *_table(accesses, "")], search.not_configured()
    access, error, result = await _read(source)
    if access is not None:
        result, error = await _describe(access)
    lines = [_CREDENTIALS_TITLE, *_table(accesses, result)]
    if access is None:
        return lines, error
    keys = search.tunnel_key_sources(access)
    key_source = choose(keys)
    if key_source is None:
        lines += [_TUNNEL_KEY_TITLE, *_table(keys, "")]
        lines.append("without a tunnel key, the relay operator and holders of the relay's keys can read the traffic")
        return lines, error
    key, key_error, key_result = await _read(key_source)
    lines += [_TUNNEL_KEY_TITLE, *_table(keys, "used" if key else key_result)]
    return lines, error or key_error


async def _read(source: Source[T]) -> tuple[T | None, RelayDebugError | None, str]:
    """Return the source's value, or the error and its text for the table."""
    if source.read is None:
        return None, None, ""
    try:
        return await source.read(), None, ""
    except RelayDebugError as error:
        return None, error, f"unusable: {error.sentence}"


async def _describe(access: Access) -> tuple[str, RelayDebugError | None]:
    """Return the table entry of the access in use; requests a token if it comes from Entra ID."""
    what = f"used: {access.endpoint}, {access.credential}"
    if not isinstance(access.credential, EntraCredential):
        return what, None
    source = access.credential.source
    try:
        token = await access.credential.token(access.endpoint)
    except RelayDebugError as error:
        return f"unusable: {error.sentence}", error
    return f"used: {access.endpoint}, {'; '.join(source.tried)}{_validity(token)}", None


def _validity(token: Token) -> str:
    """Return how long a token of Entra ID is valid; "" if its issuer has given no plausible time."""
    left = (token.expires_at or 0.0) - time.time()
    if token.expires_at is None or left > LONGEST_VALIDITY:
        return ""
    return f", valid for {left / 60:.0f} min" if left > 0 else ", expired"


def _table(sources: Sequence[Source[T]], result: str) -> list[str]:
    """Return one line per source, with `result` appended to the one in use."""
    used = choose(sources)
    width = max(len(source.name) for source in sources)
    lines = []
    for source in in_order(sources):
        entry = source.finding
        if source is used:
            entry = f"{entry} -> {result}"
        elif source.read is not None:
            entry = f"{entry} (not used: {used.name if used else ''} takes precedence)"
        lines.append(f"  {source.name:<{width}}  {entry}")
    return lines
