"""Why a program uses the credentials that it uses: every source in order, what was found, and which one counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from relay_core.auth.access import Access, Search
from relay_core.auth.choice import Source, choose, in_order
from relay_core.auth.entra import EntraCredential
from relay_core.errors import RelayDebugError

__all__ = ["explain_access"]

T = TypeVar("T")


async def explain_access(search: Search) -> tuple[list[str], RelayDebugError | None]:
    """Return lines for people, and the error of a program that would start now, if it could not.

    The source that counts is really asked, Key Vault and Entra ID included, and nothing secret is shown.
    """
    accesses = search.accesses()
    source = choose(accesses)
    if source is None:
        return ["credentials, in this order:", *_table(accesses, "")], search.nothing()
    access, error, result = await _read(source)
    if access is not None:
        result, error = await _describe(access)
    lines = ["credentials, in this order:", *_table(accesses, result)]
    if access is None:
        return lines, error
    keys = search.tunnel_keys(access)
    key_source = choose(keys)
    if key_source is None:
        lines += ["tunnel key, in this order:", *_table(keys, "")]
        lines.append("without a tunnel key the relay, and whoever holds its keys, can read what passes through")
        return lines, error
    key, key_error, key_result = await _read(key_source)
    lines += ["tunnel key, in this order:", *_table(keys, "used" if key else key_result)]
    return lines, error or key_error


async def _read(source: Source[T]) -> tuple[T | None, RelayDebugError | None, str]:
    """Return what the source has, or the error and what stands for it in the table."""
    if source.read is None:
        return None, None, ""
    try:
        return await source.read(), None, ""
    except RelayDebugError as error:
        return None, error, f"unusable: {error.sentence}"


async def _describe(access: Access) -> tuple[str, RelayDebugError | None]:
    """Return what the source that is used gives."""
    what = f"used: {access.endpoint}, {access.credential}"
    if not isinstance(access.credential, EntraCredential):
        return what, None
    source = access.credential.source
    try:
        token = await access.credential.token(access.endpoint)
    except RelayDebugError as error:
        return f"unusable: {error.sentence}", error
    left = max(0.0, (token.expires_at or 0.0) - time.time())
    return f"used: {access.endpoint}, {'; '.join(source.tried)} for {left / 60:.0f} min", None


def _table(sources: Sequence[Source[T]], result: str) -> list[str]:
    """Return a line for each source; `result` stands behind the one that is used."""
    used = choose(sources)
    width = max(len(source.name) for source in sources)
    lines = []
    for source in in_order(sources):
        told = source.finding
        if source is used:
            told = f"{told} -> {result}"
        elif source.read is not None:
            told = f"{told} (not used: {used.name if used else ''} comes first)"
        lines.append(f"  {source.name:<{width}}  {told}")
    return lines
