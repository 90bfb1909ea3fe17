"""Facts about detecting that a file was saved."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from relay_client.push import saves
from relay_client.push.saves import QUIET_SECONDS, SaveDetector, on_each_save
from relay_core.compat import timeout
from relay_core.program.file_state import FileState
from tests.support.machine.deadline import DEADLINE

OLD, NEW, NEWER = FileState(1, 10, 7), FileState(2, 10, 7), FileState(3, 12, 8)


def test_file_that_is_written_in_steps() -> None:
    """A file counts as saved once, when it has not changed for a moment."""
    detector = SaveDetector(OLD)
    states = [(0, OLD), (1, NEW), (1 + QUIET_SECONDS / 2, NEWER), (1 + QUIET_SECONDS, NEWER)]
    assert not any(detector.is_saved(state, now) for now, state in states)
    assert detector.is_saved(NEWER, 1 + 2 * QUIET_SECONDS)
    assert not detector.is_saved(NEWER, 10)


def test_file_that_is_replaced() -> None:
    """A file that is missing for a moment is saved when it is there again, unless it is the same."""
    detector = SaveDetector(OLD)
    assert not any(detector.is_saved(state, now) for now, state in ((1, None), (2, None), (3, OLD), (4, OLD)))
    assert [False, False, True] == [detector.is_saved(state, now) for now, state in ((5, None), (6, NEW), (7, NEW))]


async def test_save_during_an_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is saved while the action runs causes one more action after it."""
    monkeypatch.setattr(saves, "POLL_INTERVAL", 0.001)
    path, texts = tmp_path / "a.py", []
    path.write_text("1")
    watching = asyncio.Event()

    async def action() -> None:
        texts.append(path.read_text())
        if len(texts) == 1:
            path.write_text("333")
            path.write_text("4444")
        else:
            watching.set()

    known = FileState.of(path)
    path.write_text("22")
    task = asyncio.ensure_future(on_each_save(path, known, action))
    async with timeout(DEADLINE):
        await watching.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert ["22", "4444"] == texts
