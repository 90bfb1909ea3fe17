"""Checksums of values that may be gigabytes in size: of the tensors and arrays in a value, or of part of a single one.

A value is flattened into leaves: dicts, sequences, modules and tables are replaced by what they contain; everything
else is a leaf. Tensors and arrays are compared bit by bit, with shape and dtype; other leaves by their `repr`. A tensor
of which the ranks hold different parts is compared by its description only. Data is copied from a device in pieces of
`PIECE`, and none of it is kept.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import replace

from relay_agent.gevent_originals import time
from relay_agent.values.leaves import Leaf, flatten
from relay_core.agent_api import evaluation
from relay_core.agent_api.evaluation import MAX_PARTS, PART_DIGITS, Selection, Value, part_bounds
from relay_core.value_parsers import parse_ranges

__all__ = ["fingerprint"]

PIECE = 16 * 1024 * 1024
"""Number of bytes that are copied from a device at once."""
MAX_SHOWN = 200
"""Maximum number of characters shown for a leaf that is compared as text."""
DIGEST_DIGITS = 16
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Part of a default `repr` that differs in each process."""


def fingerprint(value: object, selection: Selection, until: float, ranks: str = "all") -> Value:
    """Return the checksums of a selection and of its parts, and the leaf if the selection is a single leaf.

    Args:
        value: Any value.
        selection: What to compare.
        until: When to give up, in seconds of `time.monotonic`.
        ranks: The ranks whose values are compared, as in `Evaluate`.

    Raises:
        TimeoutError: computing the checksums took too long.
        LookupError: the value has no such part.
    """
    leaves = [leaf._replace(shard="") if _is_common(leaf, ranks) else leaf for leaf in flatten(value)]
    stop = len(leaves) if selection.stop is None else min(selection.stop, len(leaves))
    chosen = leaves[selection.start : stop]
    if len(chosen) == 1:
        found = _of_leaf(chosen[0], selection.elements, until)
    elif selection.elements is not None:
        raise LookupError("the value has no such part")
    else:
        digests = [_of_leaf(leaf, None, until).digest for leaf in chosen]
        parts = [digests[first:last] for first, last in part_bounds(0, len(digests))]
        found = Value(digest=_digest(*digests), parts=tuple(_digest(*part)[:PART_DIGITS] for part in parts))
    is_whole = selection == Selection()
    return replace(found, leaves=len(leaves), sharded=sum(bool(leaf.shard) for leaf in leaves) if is_whole else 0)


def _is_common(leaf: Leaf, ranks: str) -> bool:
    """Return whether all chosen ranks hold the same part of a sharded tensor."""
    if not leaf.holders or ranks == "all":
        return False
    chosen = itertools.chain(*parse_ranges(ranks, what="list of ranks", example="0,3-5"))
    return all(rank in leaf.holders for rank in chosen)


def _of_leaf(leaf: Leaf, elements: tuple[int, int] | None, until: float) -> Value:
    if leaf.data is None or leaf.shard:
        text = leaf.shard or leaf.text or _ADDRESS.sub("", repr(leaf.value))
        return Value(digest=_digest(leaf.name, text), leaf=evaluation.Leaf(leaf.name, text[:MAX_SHOWN]))
    size = leaf.data.size
    start, stop = (0, size) if elements is None else (min(elements[0], size), min(elements[1], size))
    parts = [_digest_of_elements(leaf, first, last, until) for first, last in part_bounds(start, stop)]
    shown = tuple(leaf.data.show(start, stop)) if elements and stop - start <= MAX_PARTS else ()
    return Value(
        digest=_digest(leaf.name, leaf.data.kind, *parts),
        parts=tuple(part[:PART_DIGITS] for part in parts),
        leaf=evaluation.Leaf(leaf.name, leaf.data.kind, size, shown),
    )


def _digest_of_elements(leaf: Leaf, start: int, stop: int, until: float) -> str:
    assert leaf.data is not None  # noqa: S101 - its caller has checked that
    hashed = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    step = max(1, PIECE // leaf.data.item_size)
    for first in range(start, stop, step):
        if time.monotonic() > until:
            raise TimeoutError
        hashed.update(leaf.data.read(first, min(first + step, stop)))
    return hashed.hexdigest()


def _digest(*texts: str) -> str:
    hashed = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    for text in texts:
        hashed.update(text.encode(errors="backslashreplace") + b"\0")
    return hashed.hexdigest()
