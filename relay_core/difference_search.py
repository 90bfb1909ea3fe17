"""Search for the first difference between two values by comparing checksums of ever smaller parts; sans-IO."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Generator
from typing import NamedTuple

from relay_core.agent_api.evaluation import Difference, Leaf, SearchStart, Selection, Value, part_selections
from relay_core.agent_api.members import count, items, text
from relay_core.records import Clean, as_is

__all__ = ["PairedSearch", "PairedValues", "Search", "first_parts"]


# Search for the first difference between two values by comparing checksums of ever smaller parts; sans-IO.
#
# search = Search(first, second)          the same selection, taken from each of the two values
# while (selection := search.next()):     request this selection from both ...
#     search.received(first, second)      ... and pass the values on
# search.difference

MAX_STEPS = 32
"""A selection shrinks to a 24th in each step, so more steps are needed only if the values change in the meantime."""


class Search:
    """A search in progress.

    Args:
        first: The value of a selection in one process.
        second: The value of the same selection in another process, with a different checksum.
        selection: The selection.
    """

    def __init__(self, first: Value, second: Value, selection: Selection | None = None) -> None:
        self.difference: Difference | None = None
        self._selection = selection or Selection()
        self._steps = 0
        self._next: Selection | None = None
        self.received(first, second)

    def next(self) -> Selection | None:
        """Return the selection to request from both processes, or None at the end of the search."""
        return None if self.difference is not None else self._next

    def received(self, first: Value, second: Value) -> None:
        """Take the values of the selection that was requested."""
        self._selection = self._next or self._selection
        self._steps += 1
        failed = first.error or second.error
        if failed or self._steps > MAX_STEPS:
            self._end(failed or "the values keep changing")
        elif self._selection.stop is None and first.leaves != second.leaves:
            self._next = Selection(0, min(first.leaves, second.leaves))
        elif first.leaf is not None and second.leaf is not None:
            self._of_leaves(first, second, first.leaf, second.leaf)
        elif first.leaf is not None or second.leaf is not None:
            self._of_extra(first.leaf, second.leaf)
        elif first.digest == second.digest and first.leaves != second.leaves:
            common = min(first.leaves, second.leaves)
            self._next = Selection(common, common + 1)
        else:
            self._of_parts(first, second)

    def _of_leaves(self, first: Value, second: Value, one: Leaf, other: Leaf) -> None:
        if (one.name, one.description, one.elements) != (other.name, other.description, other.elements):
            shown = [one.description, other.description]
            if one.name != other.name:
                shown = [f"'{leaf.name}' {leaf.description}" for leaf in (one, other)]
            self.difference = Difference(one.name, "", None, *shown)
        elif one.shown and other.shown and self._selection.elements:
            pairs = enumerate(zip(one.shown, other.shown, strict=False), self._selection.elements[0])
            found = next(((index, *pair) for index, pair in pairs if pair[0] != pair[1]), None)
            if found is None:
                self._end("the values differ in bits that their text form does not show", one)
            else:
                self.difference = Difference(one.name, one.description, *found)
        else:
            self._of_parts(first, second)

    def _of_extra(self, one: Leaf | None, other: Leaf | None) -> None:
        """Name the first tensor or value that only one of the two processes has."""
        leaf = one or other
        assert leaf is not None  # noqa: S101 - the caller has checked that
        self.difference = Difference(
            leaf.name, "", None, *(found.description if found else "missing" for found in (one, other))
        )

    def _of_parts(self, first: Value, second: Value) -> None:
        pairs = enumerate(zip(first.parts, second.parts, strict=False))
        index = next((index for index, (one, other) in pairs if one != other), None)
        if index is None:
            note = (
                "the values keep changing"
                if first.digest == second.digest
                else "the checksums differ, but no differing part was found"
            )
            self._end(note, first.leaf)
            return
        self._next = part_selections(self._selection, first)[index]

    def _end(self, note: str, leaf: Leaf | None = None) -> None:
        self.difference = Difference(leaf.name if leaf else "", leaf.description if leaf else "", note=note)


# Search for the first difference between two values on different nodes, in as few bytes as possible; sans-IO.
#
# Both agents have the checksums of 24 parts of their value, and send the client one byte of each. The client passes
# each agent's message on to the other agent, in turn. Each message selects one of the parts that the receiver described
# last, and describes the parts of that part. Each round trip on an agent's connection therefore carries two steps:
#
#     client -> a    START  the parts of b's value
#     a -> b         STEP   part 3 differs; its parts are ...
#     b -> a         STEP   part 7 of these differs; its parts are ...
#     a -> b         FOUND  part 1 of these differs; its elements are 0.5, 1
#     b -> client    CONFIRMED  here they are 1, 1
#
# Single bytes of two different checksums are equal in one of 256 cases. Therefore a message also contains a checksum of
# all parts before the selected one. If the receiver has another checksum, or finds no different part, then it sends
# three bytes of each part's checksum (WIDE), and the sender selects again. What is found is compared as text.
# Everything else, such as tensors with different shapes, is answered with OTHER: the client continues from there with
# `relay_core.difference_search`.

START, STEP, WIDE, WIDE_BEFORE, FOUND, CONFIRMED, OTHER, FAILED = range(8)
"""Types of messages, in the first three bits. WIDE describes the parts that both sides have reached;
WIDE_BEFORE describes those of the previous step, up to the selected one."""
MAX_MESSAGES = 100
"""A search needs one message for each step, at most 20; more are needed only if the values change in the meantime."""
FEW = 2
"""Maximum number of elements that are sent as text."""
DIGITS = 6
"""Number of digits in the checksum of the elements that were found."""
KIND = 1
"""Size in bytes of the checksum of a tensor's name and description; BEFORE covers these, too."""
BEFORE = 2
"""Size in bytes of the checksum of the parts before the selected one; it matters only if one of these parts seems to be
equal.
"""
WIDE_PART = 3
"""Size in bytes of each part's checksum in WIDE."""
_HEAD = struct.Struct(f"!B{BEFORE}s")
"""The type of the message with the number of the selected part, and the checksum of the parts before it."""
INDEX_BITS = 5
"""Bits of the number of a part; enough for `MAX_PARTS`."""


def first_parts(value: Value) -> bytes:
    """Return the short checksums of the parts of a value, as in START."""
    return _kind(value) + _short(value.parts, 1)


class PairedSearch:
    """The search at one agent.

    Args:
        value: The value of the agent's process, of all leaves.
    """

    def __init__(self, value: Value) -> None:
        self._levels = [(Selection(), value)]
        """The selections on the way to the difference."""
        self._messages = 0

    def answer(self, message: bytes) -> Generator[Selection, Value, bytes]:
        """Return the message for the other agent, or for the client.

        Yields each selection whose value is needed, and expects this value.
        """
        kind = _type(message)
        if kind == START:
            del self._levels[1:]
            self._messages = 0
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            return _other()
        if kind == START:
            return (yield from self._compare(message[1:]))
        if kind in {STEP, FOUND} and len(message) >= _HEAD.size:
            return (yield from self._follow(message))
        if kind in {WIDE, WIDE_BEFORE}:
            return (yield from self._select_again(message))
        return _other()

    def _follow(self, message: bytes) -> Generator[Selection, Value, bytes]:
        """Descend to the part that the other agent has selected, unless one before it differs."""
        head, before = _HEAD.unpack_from(message)
        index = head % (1 << INDEX_BITS)
        if before != _before(self._value, index):
            return _message(WIDE_BEFORE, _short(self._value.parts[:index], WIDE_PART))
        failure = yield from self._descend(index)
        if failure is not None:
            return failure
        if _type(message) == STEP:
            return (yield from self._compare(message[_HEAD.size :]))
        own = _Found.of(*self._levels[-1])
        others = _Found.decode(message[_HEAD.size :], known=own)
        if others is None or others == own:
            return _other()
        return _message(CONFIRMED, own.encode(with_place=own.place != others.place))

    def _select_again(self, message: bytes) -> Generator[Selection, Value, bytes]:
        if _type(message) == WIDE_BEFORE and len(self._levels) > 1:
            self._levels.pop()
        index = _first_different(message[1:], _short(self._value.parts, WIDE_PART), WIDE_PART)
        return _other() if index is None else (yield from self._advance(index))

    def _compare(self, parts: bytes) -> Generator[Selection, Value, bytes]:
        """Select the first different part."""
        if parts[:KIND] != _kind(self._value):
            return _other(self._levels[-1][0])
        index = _first_different(parts[KIND:], _short(self._value.parts, 1), 1)
        if index is None:
            return _message(WIDE, _short(self._value.parts, WIDE_PART))
        return (yield from self._advance(index))

    def _advance(self, index: int) -> Generator[Selection, Value, bytes]:
        """Descend to a part, and describe it."""
        before = _before(self._value, index)
        failure = yield from self._descend(index)
        if failure is not None:
            return failure
        if _is_small(*self._levels[-1]):
            return _message(FOUND, before + _Found.of(*self._levels[-1]).encode(), index)
        return _message(STEP, before + first_parts(self._value), index)

    def _descend(self, index: int) -> Generator[Selection, Value, bytes | None]:
        """Get the value of a part; return a message if that is impossible."""
        bounds = part_selections(*self._levels[-1])
        if index >= len(bounds):
            return _other()
        value = yield bounds[index]
        if value.error:
            return _message(FAILED, value.error.encode(errors="replace"))
        self._levels.append((bounds[index], value))
        return None

    @property
    def _value(self) -> Value:
        return self._levels[-1][1]


class _Found(NamedTuple):
    """A few elements, or a leaf that is compared as text."""

    name: str
    description: str
    element: int | None
    """The index of the first element."""
    digest: str
    shown: tuple[str, ...]

    @classmethod
    def of(cls, selection: Selection, value: Value) -> _Found:
        """Return a selection that the search has reached."""
        leaf = value.leaf or Leaf("", "")
        element = selection.elements[0] if selection.elements else None
        return cls(leaf.name, leaf.description, element, value.digest[:DIGITS], leaf.shown[:FEW])

    @property
    def place(self) -> tuple[str, str, int | None]:
        """The part of the description that both values have in common, unless the values are texts."""
        return self.name, self.description, self.element

    @property
    def value(self) -> Value:
        """What was found, as a value for a `Search`."""
        return Value(leaf=Leaf(self.name, self.description, shown=self.shown), leaves=1, digest=self.digest)

    def encode(self, *, with_place: bool = True) -> bytes:
        """Return the content of FOUND or CONFIRMED."""
        return _json([[self.digest, *self.shown], *(self.place if with_place else ())])

    @classmethod
    def decode(cls, data: bytes, clean: Clean = as_is, known: _Found | None = None) -> _Found | None:
        """Read what `encode` returns; return None if it is malformed.

        Args:
            data: The content.
            clean: Applied to texts.
            known: Has the place if it is not in the content.
        """
        shown, *place = items(_parse(data)) or [[]]
        digest, *texts = [text(each, clean) for each in items(shown)] or [""]
        if len(place) < 3:
            return None if known is None else known._replace(digest=digest, shown=tuple(texts))
        name, description, element = text(place[0], clean), text(place[1], clean), count(place[2])
        return cls(name, description, element, digest, tuple(texts))


class PairedValues:
    """The search at the client, which passes the messages on.

    while (asked := search.next()) is not None:
        side, message = asked               # request this of the first (0) or second (1) agent ...
        search.received(reply)              # ... and pass its reply on
    search.difference or search.rest

    Args:
        second: How the second agent has described its value.
        clean: Applied to the texts of the agents.
    """

    def __init__(self, second: SearchStart, clean: Clean = as_is) -> None:
        self.difference: Difference | None = None
        self.rest: Selection | None = None
        """Where to continue with `Search`, if the difference has not been found."""
        self._clean = clean
        self._side = 0
        self._next: bytes | None = _message(START, second.parts)
        self._found: _Found | None = None
        self._messages = 0

    def next(self) -> tuple[int, bytes] | None:
        """Return the number of an agent and the message for it; None at the end of the search."""
        return None if self._next is None else (self._side, self._next)

    def received(self, reply: bytes) -> None:
        """Take the reply to the message."""
        self._messages += 1
        kind = _type(reply)
        self._next = None
        if kind == FAILED:
            self.difference = Difference(note=self._clean(reply[1:].decode(errors="replace")))
        elif kind == CONFIRMED:
            self._confirmed(_Found.decode(reply[1:], self._clean, self._found))
        elif kind in {STEP, FOUND, WIDE, WIDE_BEFORE} and self._messages <= 2 * MAX_MESSAGES:
            self._found = None
            self._side = 1 - self._side
            self._next = reply
            if kind == FOUND:
                self._found = _Found.decode(reply[_HEAD.size :], self._clean)
                if self._found is not None and self._found.element is not None:  # the other agent knows the place
                    self._next = reply[: _HEAD.size] + self._found.encode(with_place=False)
        else:
            self.rest = Selection.parse(_parse(reply[1:])) if kind == OTHER else Selection()

    def _confirmed(self, found: _Found | None) -> None:
        first, second = (found, self._found) if self._side == 0 else (self._found, found)
        if first is None or second is None or first.element != second.element:
            self.rest = Selection()
            return
        where = None if first.element is None else (first.element, first.element + FEW)
        self.difference = Search(first.value, second.value, Selection(0, 1, where)).difference
        if self.difference is None:
            self.rest = Selection()


def _message(kind: int, content: bytes, index: int = 0) -> bytes:
    return bytes([kind << INDEX_BITS | index]) + content


def _type(message: bytes) -> int:
    return message[0] >> INDEX_BITS if message else OTHER


def _is_small(selection: Selection, value: Value) -> bool:
    """Return whether a value is a few elements, or a leaf that is compared as text."""
    if value.leaf is None or selection.elements is None:
        return value.leaf is not None and not value.leaf.elements
    return selection.elements[1] - selection.elements[0] <= FEW


def _kind(value: Value) -> bytes:
    """Return a checksum of what must be equal before parts are compared; a text is compared as FOUND."""
    return _checksum(_kind_text(value), KIND)


def _kind_text(value: Value) -> str:
    leaf = value.leaf
    texts = [value.leaves] if leaf is None else [leaf.name, leaf.elements and leaf.description, leaf.elements]
    return "\0".join(map(str, texts))


def _short(parts: tuple[str, ...], width: int) -> bytes:
    return b"".join(_checksum(part, width) for part in parts)


def _before(value: Value, index: int) -> bytes:
    """Return a checksum of the parts before the part with an index, and of the kind of the value."""
    return _checksum("".join([*value.parts[:index], _kind_text(value)]), BEFORE)


def _checksum(part: str, width: int) -> bytes:
    return hashlib.blake2b(part.encode(errors="replace"), digest_size=width).digest()


def _first_different(one: bytes, other: bytes, width: int) -> int | None:
    starts = range(0, min(len(one), len(other)), width)
    found = (start for start in starts if one[start : start + width] != other[start : start + width])
    return next((start // width for start in found), None)


def _other(selection: Selection | None = None) -> bytes:
    return _message(OTHER, _json((selection or Selection()).encode()))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parse(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
