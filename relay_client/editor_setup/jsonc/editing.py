"""Edits a JSONC document and preserves everything else: comments, order, indentation and trailing commas.

    document = Document(text, "launch.json")
    document.upsert("configurations", "name", {"name": "Relay: rank 0", "type": "debugpy"})
    text = document.text()

An existing entry is merged: missing members are added, and differing values are replaced. A container is never replaced
as a whole, because it may contain comments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from relay_client.editor_setup.jsonc.parser import Node, line_of, parse
from relay_client.editor_setup.jsonc.rendering import WIDTH, indentation_at, render, render_member, style_of
from relay_core.errors import ConfigurationError

__all__ = ["Document"]

_LINE_END = re.compile(r"[\r\n]")
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
        self._text = text
        self._name = name
        self._root = parse(text, name)
        self._style = style_of(text, self._root)
        self._edits: list[_Edit] = []
        self._additions: dict[int, tuple[Node, list[tuple[str | None, Any]]]] = {}
        """Items to add to each container, by the container's position. The items of a container are added together,
        because the commas depend on how many there are."""
        self._members: dict[str, Any] = {}
        """New members of the root."""
        if self._root is not None and not isinstance(self._root.data, dict):
            self._mismatch(self._root, "the root", {})

    @property
    def data(self) -> Mapping[str, Any]:
        """The value of the document without the edits."""
        return self._root.data if self._root else {}

    def text(self) -> str:
        """Return the edited document; without edits, the original text."""
        if self._root is None:
            return self._with_new_root()
        edits = list(self._edits)
        for node, items in self._additions.values():
            edits += self._insertions(node, items)
        if self._members:
            edits += self._insertions(self._root, list(self._members.items()))
        return self._apply(edits)

    def set_default(self, key: str, value: Any) -> None:
        """Add a member to the root unless it already has a member with that name."""
        if key not in self.data:
            self._members[key] = value

    def replace(self, path: Sequence[str | int], value: Any) -> None:
        """Replace an existing value, for example `replace(["configurations", 0, "type"], "debugpy")`.

        Raises:
            ConfigurationError: the existing value is a container, and the new value is of another kind.
        """
        node = self._root
        for step in path:
            if node is not None:
                node = node.entries[step].node if isinstance(step, int) else node.member(step)
        if node is not None:
            self._merge(node, value, str(path[-1]))

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
        node = self._root.member(array) if self._root else None
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
        if len(wanted) < len(node.entries):
            self._edits += self._removals(node, len(wanted), name)

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

    def _with_new_root(self) -> str:
        if not self._members:
            return self._text
        end = self._style.line_end
        before = self._text if not self._text.strip("\ufeff") or self._text[-1] in "\r\n" else self._text + end
        return before + render(self._members, "", self._style, expand=True) + end

    def _insertions(self, node: Node, items: list[tuple[str | None, Any]]) -> Iterator[_Edit]:
        """Yield the changes that add items at the end of a container, after its last comment."""
        tail, closing = node.tail, node.end - 1
        last = node.entries[-1] if node.entries else None
        if last and last.comma is None:
            yield _Edit(last.node.end, last.node.end, ",")
        base = indentation_at(self._text, node.start) or ""
        if last and not _LINE_END.search(self._text, node.start, closing):
            texts = [self._item(key, value, base) for key, value in items]
            if len(base) + len(self._text[node.start : closing]) + sum(map(len, texts)) <= WIDTH or "\n" in texts[0]:
                yield _Edit(tail, tail, f" {', '.join(texts)}")
                return
        own = indentation_at(self._text, last.start, own_line=True) if last else None
        indent = base + self._style.unit if own is None else own
        added = ",".join(self._style.line_end + indent + self._item(key, value, indent) for key, value in items)
        if not last and not _LINE_END.search(self._text, tail, closing):
            yield _Edit(tail, tail, added + self._style.line_end + base)
        else:
            yield _Edit(tail, tail, added)

    def _item(self, key: str | None, value: Any, indent: str) -> str:
        if key is None:
            return render(value, indent, self._style, expand=isinstance(value, dict))
        return render_member(key, value, indent, self._style)

    def _removals(self, node: Node, count: int, name: str) -> Iterator[_Edit]:
        """Yield the changes that remove all but the first `count` elements of an array, and keep the comments."""
        kept, removed = node.entries[:count], node.entries[count:]
        if kept and removed[-1].comma is None and kept[-1].comma is not None:
            yield _Edit(kept[-1].comma, kept[-1].comma + 1, "")
        for entry in removed:
            if entry.node.is_container:
                self._mismatch(entry.node, f"an element of '{name}'", "")
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
