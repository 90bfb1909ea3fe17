"""The question `evaluate`, which evaluates one expression in many processes: values as text, or checksums.

A value is a list of leaves: tensors, arrays and anything else that has no parts. Each leaf has a name, such as
`layer.weight`. A comparison never transfers the leaves. It requests the checksums of up to `MAX_PARTS` parts of a
selection, selects the first part that differs, and repeats this until one element is left:

    all leaves -> some leaves -> one leaf -> some elements -> one element

`relay_core.difference_search` has the steps. An agent searches among the processes on its node, and sends the result to
the client. The client searches only if no node has both values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from relay_core.agent_api.members import Member
from relay_core.agent_api.questions import Question
from relay_core.errors import UsageError
from relay_core.json_values import count, items
from relay_core.records import MISSING, Clean, Wire

MAX_EXPRESSION = 16 * 1024
"""Maximum number of characters in an expression: a few pages, enough for a pasted function."""
MAX_SHOWN = 16 * 1024
"""Maximum number of characters in the text of a value; processes send at most 2,000."""
MAX_PARTS = 24
"""Maximum number of checksums in one response: a gigabyte of four-byte elements is searched in seven steps."""
PLAIN_READER = "__relay_debug_read_plain__"
"""Under this name, an expression sees the agent's function that reads a path, and copies the value into built-in types,
without executing the job's code."""
PART_DIGITS = 6
"""Number of hexadecimal digits in the checksum of a part. Few digits are enough, because the next step confirms which
part differs."""


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
    def parse(cls, value: object, _clean: Clean) -> Selection:
        """Read a selection, which has no text."""
        start, stop, first, last = [*items(value)[:4], *[None] * 4][:4]
        elements = (count(first), count(last))
        chosen = (elements[0], elements[1]) if elements[0] is not None and elements[1] is not None else None
        return cls(count(start) or 0, count(stop), chosen)


def part_bounds(start: int, stop: int) -> list[tuple[int, int]]:
    """Return the start and end of each part of a selection; each part has a checksum of its own."""
    size = max(1, -(-(stop - start) // MAX_PARTS))
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


@dataclass(frozen=True)
class Evaluate(Question):
    """Return the `Value` of an expression.

    Anyone who may attach a debugger may send this request: both execute code of the sender's choice.
    """

    name: ClassVar[str] = "evaluate"
    activity: ClassVar[str] = "evaluating an expression in"
    max_seconds: ClassVar[float] = 600.0
    process_margin: ClassVar[float] = 1.0
    is_checked: ClassVar[bool] = True
    expression: str = ""
    selection: Annotated[Selection | None, Wire(read=Selection.parse, write=Selection.encode)] = None
    """What is compared; None for the value as text."""

    def checked(self) -> Evaluate:
        """Return the question as in `Question`; raises UsageError also if the expression is missing or too long."""
        if not self.expression.strip() or len(self.expression) > MAX_EXPRESSION:
            raise UsageError(f"the expression is empty or longer than {MAX_EXPRESSION} characters")
        return super().checked()

    def at(self, selection: Selection, ports: Iterable[int]) -> Evaluate:
        """Return the request for a part of the value, in the processes with these logical ports."""
        return replace(self, selection=selection, ports=",".join(map(str, ports)))


@dataclass(frozen=True)
class Leaf:
    """One tensor or array that a comparison has reached."""

    name: str
    description: str
    elements: int = 0
    """Number of elements; 0 if it is compared as a whole."""
    shown: Annotated[tuple[str, ...], Wire(most=MAX_PARTS)] = ()
    """The selected elements, if there are only a few."""


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


def _read_parts(value: Any, clean: Clean) -> object:
    """Read checksums of equal length that are written without separators."""
    found = clean(value) if isinstance(value, str) else ""
    return tuple(found[i : i + PART_DIGITS] for i in range(0, min(len(found), MAX_PARTS * PART_DIGITS), PART_DIGITS))


def _read_lines(value: object, clean: Clean) -> object:
    return "\n".join(map(clean, value[:MAX_SHOWN].split("\n"))) if isinstance(value, str) else MISSING


@dataclass(frozen=True)
class Value:
    """The value of an expression, and the processes in which it has this value."""

    members: tuple[Member, ...] = ()
    text: Annotated[str, Wire(read=_read_lines)] = ""
    """One or more lines."""
    place: str = ""
    """Where it was evaluated: `step train.py:41`; in a running process, `__main__` or `step train.py (running)`."""
    error: str = ""
    """The reason why the value is missing, if it is."""
    is_silent: bool = False
    """True if the process has not answered."""
    digest: str = ""
    """The checksum of the selection; without one, of the tensors and arrays in a value whose text has fewer digits."""
    leaves: int = 0
    """The total number of leaves."""
    parts: Annotated[tuple[str, ...], Wire(read=_read_parts, write="".join)] = ()
    """Checksums of the parts of the selection; all parts but the last have the same length."""
    leaf: Leaf | None = None
    """The leaf, if the selection is one leaf."""
    difference: Difference | None = None
    """The first difference from the most common value on its node."""
    sharded: int = 0
    """The number of leaves whose elements were not compared, because the ranks hold different parts of them."""
    in_full: Annotated[str, Wire(read=_read_lines)] = ""
    """The text with all digits, if there is a checksum but no selection."""


def part_selections(selection: Selection, value: Value) -> list[Selection]:
    """Return the selections of the parts of a value."""
    if value.leaf is None:
        stop = value.leaves if selection.stop is None else selection.stop
        return [Selection(*bounds) for bounds in part_bounds(selection.start, stop)]
    elements = selection.elements or (0, value.leaf.elements)
    return [Selection(selection.start, selection.start + 1, bounds) for bounds in part_bounds(*elements)]
