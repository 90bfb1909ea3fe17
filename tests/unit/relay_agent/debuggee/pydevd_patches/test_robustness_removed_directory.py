"""Facts about paths that pydevd resolves; `tests/e2e/test_changed_process.py` has jobs without a directory."""

import os
from pathlib import Path

import pytest

from relay_agent.debuggee.pydevd_patches.robustness import _Path
from relay_agent.job.paths import start_directory


def test_links_are_resolved_in_order(tmp_path: Path) -> None:
    """The parent of a linked directory is the parent of its target, as without the patch."""
    (tmp_path / "shared" / "src").mkdir(parents=True)
    (tmp_path / "src").symlink_to(tmp_path / "shared" / "src")
    assert str(tmp_path / "shared" / "train.py") == _Path.realpath(f"{tmp_path}/src/../train.py")


def test_a_relative_path_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is relative to the directory in which the process was started."""
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    expected = str(Path(start_directory(), "train.py"))
    assert (expected, os.path.realpath(expected)) == (_Path.abspath("train.py"), _Path.realpath("train.py"))
