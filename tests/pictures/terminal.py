"""A command on a terminal: what it shows, with its colours, as a picture."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from tests.pictures.colours import empty_tab, write_both
from tests.support.machine.screen import Screen

if TYPE_CHECKING:
    from pyte.screens import Char

__all__ = ["write_terminal"]

PAGE = """\
<style>
  :root { color-scheme: light dark; --black: #3b4252; --red: #b3261e; --green: #1a7f37; --brown: #8a6100;
    --blue: #0550ae; --magenta: #8250df; --cyan: #1b7c83; --white: #6e7781; background: #ffffff; color: #1f2328 }
  @media (prefers-color-scheme: dark) { :root { --black: #768390; --red: #ff7b72; --green: #56d364; --brown: #e3b341;
    --blue: #79c0ff; --magenta: #d2a8ff; --cyan: #56d4dd; --white: #b1bac4; background: #161b22; color: #e6edf3 } }
  body { margin: 0 }
  pre { display: inline-block; margin: 0; padding: 14px 18px; font: 14px/1.45 "DejaVu Sans Mono", monospace }
</style><pre>%s</pre>"""
SCALE = 2


async def write_terminal(name: str, shown: Screen) -> None:
    """Write the pictures of a screen, without what is empty on its right and below."""
    rows = [_trimmed(row) for row in shown.rows]
    while not rows[-1]:
        rows.pop()
    async with empty_tab(SCALE) as tab:
        await tab.set_content(PAGE % "\n".join("".join(map(_cell, row)) for row in rows))
        box = await tab.locator("pre").bounding_box()
        assert box is not None
        await tab.set_viewport_size({"width": round(box["width"]), "height": round(box["height"])})
        await write_both(name, tab)


def _trimmed(row: list[Char]) -> list[Char]:
    end = len(row)
    while end and not row[end - 1].data.strip():
        end -= 1
    return row[:end]


def _cell(cell: Char) -> str:
    """Return the HTML of one character."""
    style = f"color: var(--{cell.fg.removeprefix('bright')});" if cell.fg != "default" else ""
    style += "font-weight: bold;" if cell.bold else ""
    text = html.escape(cell.data)
    return f'<span style="{style}">{text}</span>' if style else text
