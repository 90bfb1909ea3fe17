"""Takes what a browser shows, in light and dark colours."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from tests.pictures.files import THEMES, write_png
from tests.support.editors.vscode.editor import CHROMIUM_FLAGS
from tests.support.editors.vscode.installation import find_installation
from tests.support.machine.deadline import DEADLINE

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["both_screenshots", "empty_tab", "write_both"]

TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
"""After that, what was changed before is painted."""


@contextlib.asynccontextmanager
async def empty_tab(scale: float) -> AsyncIterator[Page]:
    """Run a browser for a block, without VS Code."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(find_installation().chromium), args=CHROMIUM_FLAGS, timeout=DEADLINE * 1000
        )
        page = await browser.new_page(device_scale_factor=scale)
        page.set_default_timeout(DEADLINE * 1000)
        yield page
        await browser.close()


async def both_screenshots(
    page: Page, until_coloured: Callable[[str], Awaitable[object]] | None = None, *, full_page: bool = False
) -> dict[str, bytes]:
    """Return a screenshot for each theme.

    Args:
        page: What is shown.
        until_coloured: Waits until the page has the colours of a theme, if that is not immediate.
        full_page: Whether to show also what is below the window.
    """
    taken = {}
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        if until_coloured is not None:
            await until_coloured(theme)
        await page.evaluate(TWO_FRAMES)
        taken[theme] = await page.screenshot(animations="disabled", caret="hide", full_page=full_page)
    return taken


async def write_both(name: str, page: Page, *, full_page: bool = False) -> None:
    """Write the PNG files of what a page shows."""
    for theme, screenshot in (await both_screenshots(page, full_page=full_page)).items():
        write_png(name, theme, screenshot)
