"""One expression in many processes, as in the request `evaluate`: values as text, or checksums.

A value is a list of leaves, which are tensors, arrays and whatever has no parts, each with a name such as
`layer.weight`. A comparison never transfers them. It asks for the checksum of a selection, in up to `MAX_PARTS` parts,
and then for one of these parts, until one element is left:

    all leaves -> some leaves -> one leaf -> some elements -> one element
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from relay_core.agent_api.members import Member, parse_members, selects_rank
from relay_core.agent_api.values import Clean, as_is, count, items, mapping, seconds, text
from relay_core.errors import UsageError

__all__ = [
    "DEFAULT_SECONDS",
    "MAX_EXPRESSION",
    "MAX_PARTS",
    "PART_DIGITS",
    "Evaluate",
    "Leaf",
    "NodeValues",
    "Selection",
    "Value",
    "part_bounds",
]

MAX_EXPRESSION = 16 * 1024
"""Characters: a few pages, such as a function that somebody has pasted."""
MAX_PARTS = 16
"""Checksums in one response: a gigabyte of four-byte elements is searched in seven steps."""
PART_DIGITS = 6
"""Hexadecimal digits of the checksum of a part: which part differs is a hint that the next step confirms."""
DEFAULT_SECONDS = 5.0
MAX_SECONDS = 600.0


@dataclass(frozen=True)
class Selection:
    """A part of a value: leaves, or elements of one leaf."""

    start: int = 0
    stop: int | None = None
    """The end of the leaves; None for all."""
    elements: tuple[int, int] | None = None
    """Start and end of the elements of the leaf `start`; None for whole leaves."""

    def encode(self) -> list[object]:
        """Return the selection in the body of a request."""
        return [self.start, self.stop, *(self.elements or ())]

    @classmethod
    def parse(cls, value: object) -> Selection:
        """Read a selection."""
        start, stop, first, last = [*items(value)[:4], *[None] * 4][:4]
        elements = (count(first), count(last))
        chosen = (elements[0], elements[1]) if elements[0] is not None and elements[1] is not None else None
        return cls(count(start) or 0, count(stop), chosen)


def part_bounds(start: int, stop: int) -> list[tuple[int, int]]:
    """Return start and end of the parts of a selection, of which each has a checksum."""
    size = max(1, -(-(stop - start) // MAX_PARTS))
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


@dataclass(frozen=True)
class Evaluate:
    """Evaluate an expression in processes of the node; the stream's data is the body.

    Whoever may attach a debugger may send this: both execute code of the sender's choice.
    """

    name: ClassVar[str] = "evaluate"
    expression: str = ""
    ranks: str = "all"
    """Which processes: a list of ranks, or "all", with those that have none."""
    seconds: float = DEFAULT_SECONDS
    """Time limit of each process."""
    selection: Selection | None = None
    """What is compared; None for the value as text."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return self.name

    def body(self) -> dict[str, object]:
        """Return the data of the stream."""
        found: dict[str, object] = {"expression": self.expression, "ranks": self.ranks, "seconds": self.seconds}
        return found if self.selection is None else found | {"compare": self.selection.encode()}

    @classmethod
    def parse(cls, target: str) -> Evaluate | None:
        """Read the name of a stream; None if it is another request."""
        return cls() if target == cls.name else None

    @classmethod
    def parse_body(cls, value: object) -> Evaluate:
        """Read the data of the stream; raises UsageError as `checked` does."""
        fields = mapping(value)
        expression, ranks = text(fields.get("expression")), text(fields.get("ranks")) or "all"
        compared = Selection.parse(fields["compare"]) if "compare" in fields else None
        return cls(expression, ranks, seconds(fields.get("seconds")) or DEFAULT_SECONDS, compared).checked()

    def checked(self) -> Evaluate:
        """Return the request with a time limit of at most `MAX_SECONDS`.

        Raises:
            UsageError: the expression is missing or too long, or the ranks are invalid.
        """
        if not self.expression.strip() or len(self.expression) > MAX_EXPRESSION:
            raise UsageError(f"no expression, or one of more than {MAX_EXPRESSION} characters")
        self.selects(0)
        return replace(self, seconds=min(self.seconds, MAX_SECONDS))

    def at(self, selection: Selection, ranks: str) -> Evaluate:
        """Return the request for a part of the value, in some of the processes."""
        return replace(self, selection=selection, ranks=ranks)

    def selects(self, rank: int | None) -> bool:
        """Return whether the expression is for a rank.

        Raises:
            UsageError: `ranks` is invalid.
        """
        return selects_rank(self.ranks, rank)


@dataclass(frozen=True)
class Leaf:
    """One tensor or array that a comparison has reached."""

    name: str
    description: str
    elements: int = 0
    """Number of elements; 0 if it is compared as a whole."""
    shown: tuple[str, ...] = ()
    """The selected elements, if they are few."""

    def encode(self) -> dict[str, object]:
        """Return the field `leaf`."""
        found: dict[str, object] = {"name": self.name, "description": self.description, "elements": self.elements}
        return found | {"shown": list(self.shown)} if self.shown else found

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Leaf | None:
        """Read the field; None if it is missing."""
        fields = mapping(value)
        if not fields:
            return None
        return cls(
            text(fields.get("name"), clean),
            text(fields.get("description"), clean),
            count(fields.get("elements")) or 0,
            tuple(text(element, clean) for element in items(fields.get("shown"))[:MAX_PARTS]),
        )


@dataclass(frozen=True)
class Value:
    """What an expression yields in processes in which it yields the same."""

    members: tuple[Member, ...] = ()
    text: str = ""
    place: str = ""
    """Where it was evaluated: `step train.py:41`, or `__main__` if the process is not stopped."""
    error: str = ""
    """The reason if the value is missing."""
    is_silent: bool = False
    """True if the process has not answered."""
    digest: str = ""
    """The checksum of the selection."""
    leaves: int = 0
    """The number of all leaves."""
    parts: tuple[str, ...] = ()
    """Checksums of the parts of the selection, of equal length but for the last."""
    leaf: Leaf | None = None
    """If the selection is one leaf."""

    def encode(self) -> dict[str, object]:
        """Return one element of `values`; empty fields are omitted."""
        fields: dict[str, object] = {
            "text": self.text,
            "place": self.place,
            "error": self.error,
            "silent": self.is_silent,
            "digest": self.digest,
            "leaves": self.leaves,
            "parts": "".join(self.parts),
            "leaf": self.leaf.encode() if self.leaf else None,
        }
        return {"members": [member.encode() for member in self.members]} | {
            name: value for name, value in fields.items() if value
        }

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Value:
        """Read one element of `values`."""
        fields = mapping(value)
        parts = text(fields.get("parts"), clean)
        return cls(
            parse_members(fields.get("members")),
            text(fields.get("text"), clean),
            text(fields.get("place"), clean),
            text(fields.get("error"), clean),
            fields.get("silent") is True,
            text(fields.get("digest"), clean),
            count(fields.get("leaves")) or 0,
            tuple(parts[i : i + PART_DIGITS] for i in range(0, min(len(parts), MAX_PARTS * PART_DIGITS), PART_DIGITS)),
            Leaf.parse(fields.get("leaf"), clean),
        )


@dataclass(frozen=True)
class NodeValues:
    """The response to `Evaluate`: the values of a node's processes; equal values are sent once."""

    values: tuple[Value, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"values": [value.encode() for value in self.values]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodeValues:
        """Read the response."""
        found = items(mapping(value).get("values"))
        return cls(tuple(Value.parse(one, clean) for one in found if isinstance(one, Mapping)))
