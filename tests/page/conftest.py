"""The web browser of these tests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.machine.deadline import DEADLINE

if TYPE_CHECKING:
    from playwright.async_api import Page

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDE = {"width": 1400, "height": 900}


@pytest_asyncio.fixture
async def tab() -> AsyncIterator[Page]:
    """An empty tab; errors of the page's code fail the test."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: run `make extras`")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: run `make extras`")
    errors: list[str] = []
    async with playwright.async_playwright() as running:
        browser = await running.chromium.launch(executable_path=chromium, args=FLAGS, timeout=DEADLINE * 1000)
        context = await browser.new_context(viewport=WIDE, permissions=["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        page.set_default_timeout(DEADLINE * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        await browser.close()
    assert [] == errors
