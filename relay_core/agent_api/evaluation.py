"""The request `evaluate`, which evaluates one expression in many processes: values as text, or checksums.

A value is a list of leaves: tensors, arrays and anything else that has no parts. Each leaf has a name, such as
`layer.weight`. A comparison never transfers the leaves. It requests the checksums of up to `MAX_PARTS` parts of a
selection, selects the first part that differs, and repeats this until one element is left:

    all leaves -> some leaves -> one leaf -> some elements -> one element

An agent searches among the processes on its node (`relay_core.difference_search`), and only the result is sent to the
client. The client searches only if no node has both values: with `relay_core.paired_search`, or step by step if an
agent does not support this.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from relay_core.agent_api.members import Member, parse_members, selects_port, selects_rank
from relay_core.agent_api.values import Clean, as_is, count, items, mapping, seconds, text
from relay_core.errors import UsageError

__all__ = [
    "DEFAULT_SECONDS",
    "MAX_EXPRESSION",
    "MAX_PARTS",
    "PART_DIGITS",
    "PATH_READER",
    "Difference",
    "Evaluate",
    "Leaf",
    "NodeValues",
    "SearchStart",
    "SearchStep",
    "Selection",
    "Value",
    "part_bounds",
    "part_selections",
]

MAX_EXPRESSION = 16 * 1024
"""Maximum number of characters in an expression: a few pages, enough for a pasted function."""
MAX_PARTS = 24
"""Maximum number of checksums in one response: a gigabyte of four-byte elements is searched in seven steps."""
PATH_READER = "__relay_debug_read_path__"
"""Under this name, an expression sees the agent's function that reads a path without executing the job's code."""
PART_DIGITS = 6
"""Number of hexadecimal digits in the checksum of a part. Few digits are enough, because the next step confirms which
part differs."""
SHORT = ("members", "place", "digest", "leaves", "search")
"""Fields, in order, of a value that is sent without field names."""
TOKEN_SIZE = 2
"""Size of a search's number in bytes."""
DEFAULT_SECONDS = 5.0
MAX_SECONDS = 600.0


@dataclass(frozen=True)
class Selection:
    """A part of a value: leaves, or elements of one leaf."""

    start: int = 0
    stop: int | None = None
    """Index after the last selected leaf; None for all leaves."""
    elements: tuple[int, int] | None = None
    """Start and end of the selected elements in the leaf `start`; None for whole leaves."""

    def encode(self) -> list[object]:
        """Return the selection in the body of a request."""
        if self.elements is None and self.stop is None:
            return [self.start]
        return [self.start, self.stop, *(self.elements or ())]

    @classmethod
    def parse(cls, value: object) -> Selection:
        """Read a selection."""
        start, stop, first, last = [*items(value)[:4], *[None] * 4][:4]
        elements = (count(first), count(last))
        chosen = (elements[0], elements[1]) if elements[0] is not None and elements[1] is not None else None
        return cls(count(start) or 0, count(stop), chosen)


def part_bounds(start: int, stop: int) -> list[tuple[int, int]]:
    """Return the start and end of each part of a selection; each part has a checksum of its own."""
    size = max(1, -(-(stop - start) // MAX_PARTS))
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


@dataclass(frozen=True)
class Evaluate:
    """Evaluate an expression in processes on the node; the stream's data is the body.

    Anyone who may attach a debugger may send this request: both execute code of the sender's choice.
    """

    name: ClassVar[str] = "evaluate"
    expression: str = ""
    ranks: str = "all"
    """The processes in which to evaluate the expression: a list of ranks, or "all", which includes processes without a
    rank."""
    seconds: float = DEFAULT_SECONDS
    """Time limit for each process."""
    selection: Selection | None = None
    """What is compared; None for the value as text."""
    is_message: bool = False
    """Whether it was sent as a message, in which case its client can search with `SearchStep`."""
    ports: str = ""
    """A list of logical ports that further restricts the processes; "" for all. Logical ports differ between jobs."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return self.name

    def body(self) -> dict[str, object]:
        """Return the data of the stream."""
        found: dict[str, object] = {"expression": self.expression, "seconds": self.seconds}
        if self.ranks != "all":
            found["ranks"] = self.ranks
        if self.ports:
            found["ports"] = self.ports
        return found if self.selection is None else found | {"compare": self.selection.encode()}

    @classmethod
    def parse(cls, target: str) -> Evaluate | None:
        """Read the name of a stream; return None if it names another request."""
        return cls() if target == cls.name else None

    @classmethod
    def parse_body(cls, value: object) -> Evaluate:
        """Read the data of the stream; raises UsageError like `checked`."""
        fields = mapping(value)
        expression, ranks = text(fields.get("expression")), text(fields.get("ranks")) or "all"
        compared = Selection.parse(fields["compare"]) if "compare" in fields else None
        limit = seconds(fields.get("seconds")) or DEFAULT_SECONDS
        return cls(expression, ranks, limit, compared, ports=text(fields.get("ports"))).checked()

    def checked(self) -> Evaluate:
        """Return the request with a time limit of at most `MAX_SECONDS`.

        Raises:
            UsageError: the expression is missing or too long, or the ranks or ports are invalid.
        """
        if not self.expression.strip() or len(self.expression) > MAX_EXPRESSION:
            raise UsageError(f"the expression is empty or longer than {MAX_EXPRESSION} characters")
        self.selects(0, 0)
        return replace(self, seconds=min(self.seconds, MAX_SECONDS))

    def at(self, selection: Selection, ports: Iterable[int]) -> Evaluate:
        """Return the request for a part of the value, in the processes with these logical ports."""
        return replace(self, selection=selection, ports=",".join(map(str, ports)))

    def selects(self, rank: int | None, port: int) -> bool:
        """Return whether the expression is to be evaluated in a process.

        Raises:
            UsageError: `ranks` or `ports` is invalid.
        """
        is_of_job = selects_port(self.ports, port)
        return selects_rank(self.ranks, rank) and is_of_job


@dataclass(frozen=True)
class Leaf:
    """One tensor or array that a comparison has reached."""

    name: str
    description: str
    elements: int = 0
    """Number of elements; 0 if it is compared as a whole."""
    shown: tuple[str, ...] = ()
    """The selected elements, if there are only a few."""

    def encode(self) -> dict[str, object]:
        """Return the field `leaf`."""
        found: dict[str, object] = {"name": self.name, "description": self.description, "elements": self.elements}
        return found | {"shown": list(self.shown)} if self.shown else found

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Leaf | None:
        """Read the field; return None if it is missing."""
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
class Difference:
    """The first difference between two values."""

    leaf: str = ""
    """The name of the tensor or array; "" if the value itself is a tensor or array."""
    description: str = ""
    """Shape and dtype in the first value."""
    element: int | None = None
    """The index in the flat array; None if the leaves differ in kind."""
    first: str = ""
    """The element, or the leaf, in the first value."""
    second: str = ""
    note: str = ""
    """Why the search ended early."""
    other: str = ""
    """The checksum of the second value, if an agent has searched."""

    def encode(self) -> dict[str, object]:
        """Return the field `difference`; empty fields are omitted."""
        return {name: value for name, value in vars(self).items() if value not in {"", None}}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Difference | None:
        """Read the field; return None if it is missing."""
        fields = mapping(value)
        if not fields:
            return None
        leaf, description, first, second, note, other = (
            text(fields.get(name), clean) for name in ("leaf", "description", "first", "second", "note", "other")
        )
        return cls(leaf, description, count(fields.get("element")), first, second, note, other)


@dataclass(frozen=True)
class SearchStart:
    """An agent's offer to search for the first difference, with a description of its value."""

    port: int
    """The logical port of a process that has the value."""
    token: int
    """The number of the search at its agent."""
    parts: bytes
    """See `relay_core.paired_search`."""

    def encode(self) -> str:
        """Return the field `search`."""
        return b64encode(self.token.to_bytes(TOKEN_SIZE, "big") + self.parts).decode()

    @classmethod
    def parse(cls, value: object, port: int) -> SearchStart | None:
        """Read the field; return None if it is missing."""
        try:
            data = b64decode(text(value))
        except ValueError:
            return None
        return cls(port, int.from_bytes(data[:TOKEN_SIZE], "big"), data[TOKEN_SIZE:]) if data else None


@dataclass(frozen=True)
class SearchStep:
    """A step of a search that an agent has offered, sent as a message; the response contains the next `data`."""

    token: int
    data: bytes

    def encode(self) -> bytes:
        """Return the message; its first byte distinguishes it from JSON."""
        return b"\0" + self.token.to_bytes(TOKEN_SIZE, "big") + self.data

    @classmethod
    def parse(cls, message: bytes) -> SearchStep | None:
        """Read a message; return None if it is another request."""
        end = 1 + TOKEN_SIZE
        return cls(int.from_bytes(message[1:end], "big"), message[end:]) if message[:1] == b"\0" else None


@dataclass(frozen=True)
class Value:
    """The value of an expression, and the processes in which it has this value."""

    members: tuple[Member, ...] = ()
    text: str = ""
    place: str = ""
    """The place where it was evaluated: `step train.py:41`, or `__main__` if the process is not stopped."""
    error: str = ""
    """The reason why the value is missing, if it is."""
    is_silent: bool = False
    """True if the process has not answered."""
    digest: str = ""
    """The checksum of the selection."""
    leaves: int = 0
    """The total number of leaves."""
    parts: tuple[str, ...] = ()
    """Checksums of the parts of the selection; all parts but the last have the same length."""
    leaf: Leaf | None = None
    """The leaf, if the selection is one leaf."""
    difference: Difference | None = None
    """The first difference from the most common value on its node."""
    starts: tuple[SearchStart, ...] = ()
    """Searches that agents offer, instead of `parts`."""

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
            "difference": self.difference.encode() if self.difference else None,
            "search": self.starts[0].encode() if self.starts else None,
        }
        return {"members": [member.encode() for member in self.members]} | {
            name: value for name, value in fields.items() if value
        }

    def encode_short(self) -> dict[str, object] | list[object]:
        """Return one element of `values` for a message, without field names if it contains only a search."""
        fields = self.encode()
        return [fields[name] for name in SHORT] if fields.keys() == set(SHORT) else fields

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Value:
        """Read one element of `values`."""
        short = items(value)
        fields = dict(zip(SHORT, short, strict=False)) if short else mapping(value)
        parts = text(fields.get("parts"), clean)
        members = parse_members(fields.get("members"))
        start = SearchStart.parse(fields.get("search"), members[0].port) if members else None
        return cls(
            members,
            text(fields.get("text"), clean),
            text(fields.get("place"), clean),
            text(fields.get("error"), clean),
            fields.get("silent") is True,
            text(fields.get("digest"), clean),
            count(fields.get("leaves")) or 0,
            tuple(parts[i : i + PART_DIGITS] for i in range(0, min(len(parts), MAX_PARTS * PART_DIGITS), PART_DIGITS)),
            Leaf.parse(fields.get("leaf"), clean),
            Difference.parse(fields.get("difference"), clean),
            (start,) if start else (),
        )


def part_selections(selection: Selection, value: Value) -> list[Selection]:
    """Return the selections of the parts of a value."""
    if value.leaf is None:
        stop = value.leaves if selection.stop is None else selection.stop
        return [Selection(*bounds) for bounds in part_bounds(selection.start, stop)]
    elements = selection.elements or (0, value.leaf.elements)
    return [Selection(selection.start, selection.start + 1, bounds) for bounds in part_bounds(*elements)]


@dataclass(frozen=True)
class NodeValues:
    """The response to `Evaluate`: the values in the processes on a node; equal values are sent only once."""

    values: tuple[Value, ...] = ()
    is_message: bool = False

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"values": [value.encode_short() if self.is_message else value.encode() for value in self.values]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodeValues:
        """Read the response."""
        found = items(mapping(value).get("values"))
        return cls(tuple(Value.parse(one, clean) for one in found if isinstance(one, Mapping | list)))
