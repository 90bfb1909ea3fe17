"""Detects by polling that a file was saved; editors write files in several steps, or replace them with new files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from relay_core.program.file_state import FileState

POLL_INTERVAL = 0.2
"""Seconds between two checks of the file; a check takes a few microseconds."""
QUIET_SECONDS = 0.3
"""Seconds that a file must remain unchanged before it counts as saved; formatters often write it a second time."""


class SaveDetector:
    """Decides when a file was saved; sans-IO.

    Args:
        state: The version of the file that does not count as saved.
    """

    def __init__(self, state: FileState | None) -> None:
        self._known = self._last = state
        self._changed_at = 0.0

    def is_saved(self, state: FileState | None, now: float) -> bool:
        """Return True once for each version that has not changed for `QUIET_SECONDS`.

        Args:
            state: The current state of the file.
            now: Monotonic time.
        """
        if state != self._last:
            self._last, self._changed_at = state, now
        if state is None or state == self._known or now - self._changed_at < QUIET_SECONDS:
            return False
        self._known = state
        return True


async def on_each_save(path: Path, known: FileState | None, action: Callable[[], Awaitable[None]]) -> NoReturn:
    """Perform an action whenever a file is saved, until cancelled; all saves during an action lead to one more action.

    Args:
        path: The file.
        known: The version of the file that does not count as saved.
        action: What to do after each save.
    """
    loop = asyncio.get_running_loop()
    detector = SaveDetector(known)
    while True:
        await asyncio.sleep(POLL_INTERVAL)
        if detector.is_saved(FileState.of(path), loop.time()):
            await action()
