"""A parser that records positions, for JSON with comments, trailing commas and a byte order mark.

Other deviations from JSON that VS Code tolerates, such as single quotes, a missing comma or a control character in a
string, are errors with a line number. A file whose meaning is ambiguous must not be edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from relay_core.errors import ConfigurationError

__all__ = ["BOM", "Entry", "Node", "line_of", "parse"]

BOM = "\ufeff"
MAX_DEPTH = 100
"""Maximum nesting depth; VS Code's files have about ten levels, and Python's default recursion limit is a thousand."""

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\n]+ )
    | (?P<comment> //[^\r\n]* | /\*[\s\S]*?\*/ )
    | (?P<string>  "[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*" )
    | (?P<scalar>  -?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)? | true | false | null )
    | (?P<mark>    [{}\[\]:,] )
    """,
    re.VERBOSE,
)
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Node:
    """A value and its position."""

    start: int
    end: int
    """Position after the last character of the value."""
    data: Any
    """The value as a Python object. If several members have the same name, the last one is used."""
    entries: tuple[Entry, ...] = ()
    """The members of an object or the elements of an array, in the order in which they are written."""
    tail: int = 0
    """In a container, the position after its last token or comment."""

    @property
    def is_container(self) -> bool:
        """Whether the value is an object or an array."""
        return isinstance(self.data, (dict, list))

    def member(self, key: str) -> Node | None:
        """Return the value of a member of this object."""
        return next((entry.node for entry in reversed(self.entries) if entry.key == key), None)


@dataclass(frozen=True)
class Entry:
    """One member of an object, or one element of an array."""

    start: int
    """Position of the member's name, or of the element."""
    node: Node
    key: str | None = None
    comma: int | None = None
    """Position of the comma after the entry."""


class _Token(NamedTuple):
    kind: str
    """Kind of the token: `string`, `scalar`, `end`, or the mark itself."""
    text: str
    start: int
    before: int
    """Position after the token or comment before it."""


def parse(text: str, name: str) -> Node | None:
    """Return the root of a document; None if the document contains only white space and comments.

    Args:
        text: The document.
        name: Its name, for errors.

    Raises:
        ConfigurationError: the document is invalid.
    """
    return _Parser(text, name).document()


def line_of(text: str, position: int) -> int:
    """Return the line number of a position, counted from 1."""
    return len(_LINE_END.findall(text, 0, position)) + 1


class _Parser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._tokens = self._scan()
        self._token = next(self._tokens)
        self._depth = 0

    def document(self) -> Node | None:
        if self._token.kind == "end":
            return None
        root = self._value()
        if self._token.kind != "end":
            self._fail("the end of the file")
        return root

    def _scan(self) -> Iterator[_Token]:
        position = before = len(BOM) if self._text.startswith(BOM) else 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._fail_at(position, self._unreadable(position))
            group = str(match.lastgroup)
            if group not in {"space", "comment"}:
                yield _Token(match[0] if group == "mark" else group, match[0], position, before)
            position = match.end()
            before = before if group == "space" else position
        yield _Token("end", "", position, before)

    def _unreadable(self, position: int) -> str:
        char = self._text[position]
        if char == '"':
            return "an unterminated string, or an invalid character in a string"
        if self._text.startswith("/*", position):
            return "an unterminated comment"
        return f"unexpected {char!a}"

    def _next(self) -> _Token:
        taken, self._token = self._token, next(self._tokens, self._token)
        return taken

    def _value(self) -> Node:
        if self._token.kind in {"string", "scalar"}:
            token = self._next()
            return Node(token.start, token.start + len(token.text), json.loads(token.text))
        if self._token.kind == "{":
            return self._container("}")
        if self._token.kind != "[":
            self._fail("a value")
        return self._container("]")

    def _container(self, closing: str) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail_at(self._token.start, f"nested more than {MAX_DEPTH} levels deep")
        start = self._next().start
        entries: list[Entry] = []
        while self._token.kind != closing:
            if entries and entries[-1].comma is None:
                self._fail(f"a comma or '{closing}'")
            entries.append(self._entry(has_key=closing == "}"))
        self._depth -= 1
        last = self._next()
        elements = [entry.node.data for entry in entries]
        data = elements if closing == "]" else dict(zip((entry.key for entry in entries), elements, strict=True))
        return Node(start, last.start + 1, data, tuple(entries), last.before)

    def _entry(self, *, has_key: bool) -> Entry:
        start, key = self._token.start, None
        if has_key:
            if self._token.kind != "string":
                self._fail("a name in double quotes")
            key = json.loads(self._next().text)
            if self._token.kind != ":":
                self._fail("a colon")
            self._next()
        node = self._value()
        comma = self._next().start if self._token.kind == "," else None
        return Entry(start, node, key, comma)

    def _fail(self, expected: str) -> NoReturn:
        found = f"'{self._token.text[:40]}'" if self._token.text else "the end of the file"
        self._fail_at(self._token.start, f"expected {expected}, found {found}")

    def _fail_at(self, position: int, what: str) -> NoReturn:
        raise ConfigurationError(
            f"{self._name}, line {line_of(self._text, position)}: {what}",
            hint="correct the file; nothing has been changed",
        )
