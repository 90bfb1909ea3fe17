"""JSON with comments, trailing commas and a byte order mark: parses and edits it, and preserves everything else.

    document = Document(text, "launch.json")
    document.upsert("configurations", "name", {"name": "Relay: rank 0", "type": "debugpy"})
    text = document.text()

An existing entry is merged: missing members are added, and differing values are replaced. A container is never replaced
as a whole, because it may contain comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, cast

from relay_core.errors import ConfigurationError

# A parser that records positions, for JSON with comments, trailing commas and a byte order mark.
#
# Other deviations from JSON that VS Code tolerates, such as single quotes, a missing comma or a control character in a
# string, are errors with a line number. A file whose meaning is ambiguous must not be edited.

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


UNCHANGED = "correct the file; nothing has been changed"


def parse(text: str, name: str, hint: str = UNCHANGED) -> Node | None:
    """Return the root of a document; None if the document contains only white space and comments.

    Args:
        text: The document.
        name: Its name, for errors.
        hint: The hint of errors.

    Raises:
        ConfigurationError: the document is invalid.
    """
    return _Parser(text, name, hint).document()


def line_of(text: str, position: int) -> int:
    """Return the line number of a position, counted from 1."""
    return len(_LINE_END.findall(text, 0, position)) + 1


class _Parser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str, name: str, hint: str) -> None:
        self._text = text
        self._name = name
        self._hint = hint
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
        if self._token.kind not in {"{", "["}:
            self._fail("a value")
        return self._container("}" if self._token.kind == "{" else "]")

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
            hint=self._hint,
        )


# Renders values as JSONC, with the indentation of the surrounding file and without trailing commas.
#
# VS Code accepts trailing commas, but nvim-dap reads the same files with a strict JSON parser. A list or an object that
# already has one keeps it.

WIDTH = 110
"""A nested value that fits into a line of this length stays on one line."""


class Style(NamedTuple):
    """Indentation and line ending of a file."""

    unit: str = " " * 4
    """Indentation of one level."""
    line_end: str = "\n"


def style_of(text: str, root: Node | None) -> Style:
    """Return the indentation and line ending of a file; the defaults are four spaces and a line feed."""
    first = _LINE_END.search(text)
    unit = indentation_at(text, root.entries[0].start, own_line=True) if root and root.entries else None
    return Style(unit or Style().unit, first[0] if first else Style().line_end)


def indentation_at(text: str, position: int, *, own_line: bool = False) -> str | None:
    """Return the indentation of the line that contains a position.

    Args:
        text: The document.
        position: Position of an entry.
        own_line: Whether to return None if other text precedes the position on its line.
    """
    start = max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
    before = text[start:position].removeprefix(BOM)
    space = before[: len(before) - len(before.lstrip(" \t"))]
    return None if own_line and space != before else space


def render(value: Any, indent: str, style: Style, *, expand: bool = False) -> str:
    """Return a value as JSON.

    Args:
        value: The value.
        indent: Indentation of the line on which it begins.
        style: Style of the file.
        expand: Whether to put each entry on a separate line even if all fit on one line.
    """
    one_line = _inline(value)
    if not value or not isinstance(value, (dict, list)) or (not expand and len(indent) + len(one_line) <= WIDTH):
        return one_line
    inner = indent + style.unit
    if isinstance(value, dict):
        opening, closing = "{}"
        lines = [render_member(key, each, inner, style) for key, each in value.items()]
    else:
        opening, closing = "[]"
        lines = [render(each, inner, style, expand=isinstance(each, dict)) for each in value]
    body = ",".join(style.line_end + inner + line for line in lines)
    return f"{opening}{body}{style.line_end}{indent}{closing}"


def render_member(key: str, value: Any, indent: str, style: Style) -> str:
    """Return a member of an object as JSON."""
    holds_objects = isinstance(value, list) and len(value) > 1 and isinstance(value[0], dict)
    return f"{_quoted(key)}: {render(value, indent, style, expand=holds_objects)}"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        members = ", ".join(f"{_quoted(key)}: {_inline(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return _quoted(value)


def _quoted(scalar: Any) -> str:
    text = json.dumps(scalar, ensure_ascii=False)
    return json.dumps(scalar) if _SURROGATE.search(text) else text


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Cannot be written as UTF-8; a file name from a command line may contain bytes that are not UTF-8, as these."""
_LINE_BREAK = re.compile(r"[\r\n]")
_BLANK_REST = re.compile(r"[ \t]*(?:\r\n|\r|\n)")
"""The blank rest of a line, including the line break."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class Document:
    """A document whose root is an object, and its requested edits.

    Args:
        text: The document; a document without a value gets an empty object as its root.
        name: Its name, for errors.

    Raises:
        ConfigurationError: the document is not valid, or its root is not an object.
    """

    def __init__(self, text: str, name: str) -> None:
        self._original = self._text = text
        self._name = name
        root = parse(text, name)
        self._style = style_of(text, root)
        if root is None:
            end = self._style.line_end
            self._text += "{}" + end if not text.strip(BOM) or text[-1] in "\r\n" else end + "{}" + end
        self._root = root or cast("Node", parse(self._text, name))
        self._edits: list[_Edit] = []
        self._additions: dict[int, tuple[Node, list[tuple[str | None, Any]]]] = {}
        """Items to add to each container, by the container's position. The items of a container are added together,
        because the commas depend on how many there are."""
        self._members: dict[str, Any] = {}
        """New members of the root."""
        if not isinstance(self._root.data, dict):
            self._mismatch(self._root, "the root", {})

    @property
    def data(self) -> Mapping[str, Any]:
        """The value of the document without the edits."""
        data: Mapping[str, Any] = self._root.data
        return data

    def text(self) -> str:
        """Return the edited document; without edits, the original text."""
        edits = list(self._edits)
        for node, items in self._additions.values():
            edits += self._insertions(node, items)
        if self._members:
            edits += self._insertions(self._root, list(self._members.items()))
        return self._apply(edits) if edits else self._original

    def set_default(self, key: str, value: Any) -> None:
        """Add a member to the root unless it already has a member with that name."""
        if key not in self.data:
            self._members[key] = value

    def change(self, array: str, is_wanted: Callable[[Any], bool], members: Mapping[str, Any]) -> None:
        """Give these members to the wanted objects of an array in the root, if there is one.

        Raises:
            ConfigurationError: an existing member is a container, and the new one is of another kind.
        """
        node = self._root.member(array)
        for entry in node.entries if node is not None else ():
            if entry.key is None and is_wanted(entry.node.data):
                self._merge(entry.node, dict(members), array)

    def upsert(self, array: str, key: str, entry: Mapping[str, Any], *, keep: Collection[str] = ()) -> None:
        """Ensure that an array in the root contains an object: add the object, or update the one with the same name.

        Args:
            array: Name of the array; created if missing.
            key: Name of the member that identifies an object.
            entry: The members that the object must have.
            keep: Members of `entry` that are left unchanged if the object already has them.

        Raises:
            ConfigurationError: a value in the document is of another kind, for example a string instead of the array.
        """
        node = self._root.member(array)
        if node is None:
            self._members.setdefault(array, []).append(dict(entry))
            return
        if not isinstance(node.data, list):
            self._mismatch(node, f"'{array}'", [])
        for each in node.entries:
            if isinstance(each.node.data, dict) and each.node.data.get(key) == entry[key]:
                wanted = {
                    name: value for name, value in entry.items() if name not in keep or each.node.member(name) is None
                }
                self._merge(each.node, wanted, array)
                return
        self._add(node, None, dict(entry))

    def remove(self, array: str, is_unwanted: Callable[[Any], bool]) -> None:
        """Remove the unwanted objects of an array in the root, if there is one; comments beside them are kept."""
        node = self._root.member(array)
        if node is not None:
            unwanted = [entry for entry in node.entries if entry.key is None and is_unwanted(entry.node.data)]
            self._edits += self._without(node, unwanted)

    def remove_empty(self, array: str) -> None:
        """Remove an array in the root that contains neither an element nor a comment."""
        named = [entry for entry in self._root.entries if (entry.key, entry.node.data) == (array, [])]
        blank = [each for each in named if not self._text[each.node.start + 1 : each.node.end - 1].strip()]
        self._edits += self._without(self._root, blank)

    def _merge(self, node: Node, wanted: Any, name: str) -> None:
        """Change a value to the wanted one; other members of objects are kept."""
        if node.is_container and not isinstance(wanted, type(node.data)):
            self._mismatch(node, f"'{name}'", wanted)
        if isinstance(wanted, dict) and node.is_container:
            for key, value in wanted.items():
                member = node.member(key)
                if member is None:
                    self._add(node, key, value)
                else:
                    self._merge(member, value, key)
        elif isinstance(wanted, list) and node.is_container:
            self._merge_elements(node, wanted, name)
        elif not _same(node.data, wanted):
            indent = indentation_at(self._text, node.start) or ""
            self._edits.append(_Edit(node.start, node.end, render(wanted, indent, self._style)))

    def _merge_elements(self, node: Node, wanted: list[Any], name: str) -> None:
        for entry, value in zip(node.entries, wanted, strict=False):
            self._merge(entry.node, value, name)
        for value in wanted[len(node.entries) :]:
            self._add(node, None, value)
        surplus = node.entries[len(wanted) :]
        if container := next((entry.node for entry in surplus if entry.node.is_container), None):
            self._mismatch(container, f"an element of '{name}'", "")
        self._edits += self._without(node, surplus)

    def _add(self, node: Node, key: str | None, value: Any) -> None:
        self._additions.setdefault(node.start, (node, []))[1].append((key, value))

    def _mismatch(self, node: Node, what: str, wanted: Any) -> NoReturn:
        line = line_of(self._text, node.start)
        raise ConfigurationError(
            f"{self._name}, line {line}: {what} is {_kind(node.data)}, expected {_kind(wanted)}",
            hint="correct or remove this value; nothing has been changed",
        )

    # Edits as changes to the text:

    def _apply(self, edits: list[_Edit]) -> str:
        pieces, position = [], 0
        for edit in sorted(edits, key=lambda edit: edit[:2]):  # stable: the comma of an entry precedes what follows it
            pieces += [self._text[position : edit.start], edit.text]
            position = edit.end
        return "".join([*pieces, self._text[position:]])

    def _insertions(self, node: Node, items: list[tuple[str | None, Any]]) -> Iterator[_Edit]:
        """Yield the changes that add items at the end of a container, after its last comment."""
        tail, closing = node.tail, node.end - 1
        last = node.entries[-1] if node.entries else None
        if last and last.comma is None:
            yield _Edit(last.node.end, last.node.end, ",")
        trailing = "," if last and last.comma is not None else ""
        base = indentation_at(self._text, node.start) or ""
        if last and not _LINE_BREAK.search(self._text, node.start, closing):
            texts = [self._item(key, value, base) for key, value in items]
            if len(base) + len(self._text[node.start : closing]) + sum(map(len, texts)) <= WIDTH or "\n" in texts[0]:
                yield _Edit(tail, tail, f" {', '.join(texts)}{trailing}")
                return
        own = indentation_at(self._text, last.start, own_line=True) if last else None
        indent = base + self._style.unit if own is None else own
        added = ",".join(self._style.line_end + indent + self._item(key, value, indent) for key, value in items)
        if not last and not _LINE_BREAK.search(self._text, tail, closing):
            yield _Edit(tail, tail, added + self._style.line_end + base)
        else:
            yield _Edit(tail, tail, added + trailing)

    def _item(self, key: str | None, value: Any, indent: str) -> str:
        if key is None:
            return render(value, indent, self._style, expand=isinstance(value, dict))
        return render_member(key, value, indent, self._style)

    def _without(self, node: Node, removed: Sequence[Entry]) -> Iterator[_Edit]:
        """Yield the changes that remove elements of an array, and the comma before them if none follows."""
        kept = [entry for entry in node.entries if entry not in removed]
        if kept and removed and removed[-1].comma is None and kept[-1].comma is not None:
            yield _Edit(kept[-1].comma, kept[-1].comma + 1, "")
        for entry in removed:
            yield from self._removal(entry.start, entry.node.end, entry.comma)

    def _removal(self, start: int, end: int, comma: int | None) -> Iterator[_Edit]:
        """Yield the changes that remove an element with the space before it, and its line if that is then empty."""
        if comma is not None and not self._text[end:comma].strip(" \t"):
            end, comma = comma + 1, None
        if comma is not None:
            yield _Edit(comma, comma + 1, "")
        start -= len(self._text[:start]) - len(self._text[:start].rstrip(" \t"))
        rest = _BLANK_REST.match(self._text, end)
        if rest and self._text[start - 1] in "\r\n":
            end = rest.end()
        yield _Edit(start, end, "")


def _same(data: Any, wanted: Any) -> bool:
    """Return True if two scalars are equal in JSON, where 1.0 equals 1 but true does not."""
    return isinstance(data, bool) == isinstance(wanted, bool) and bool(data == wanted)


def _kind(value: Any) -> str:
    """Return the kind of a value as text."""
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "a single value"
