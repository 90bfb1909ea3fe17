"""Renders values as JSONC, with the indentation of the surrounding file and without trailing commas.

VS Code accepts trailing commas, but nvim-dap reads the same files with a strict JSON parser.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from relay_client.editor_setup.jsonc.parser import BOM, Node

__all__ = ["WIDTH", "Style", "indentation_at", "render", "render_member", "style_of"]

WIDTH = 110
"""A nested value that fits into a line of this length stays on one line."""

_LINE_END = re.compile(r"\r\n|\r|\n")


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
    return f"{_quoted(key)}: {render(value, indent, style, expand=_holds_objects(value))}"


def _holds_objects(value: Any) -> bool:
    """Return True if a value is a list of objects, each of which gets its own lines."""
    return isinstance(value, list) and len(value) > 1 and isinstance(value[0], dict)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        members = ", ".join(f"{_quoted(key)}: {_inline(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return _quoted(value)


def _quoted(scalar: Any) -> str:
    text = json.dumps(scalar, ensure_ascii=False)
    return text if text.isascii() or _is_unicode(text) else json.dumps(scalar)


def _is_unicode(text: str) -> bool:
    """Return True if a text can be written as UTF-8; a file name from a command line may contain other bytes."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
