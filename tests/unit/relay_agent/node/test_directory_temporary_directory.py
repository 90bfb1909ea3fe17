"""Facts about the directory for temporary files."""

import tempfile
from pathlib import Path

import pytest

from relay_agent.node.directory import temporary_directory


def test_it_is_as_in_tempfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable counts, in the order of `tempfile`, unless it names no directory."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TMP", "TEMP", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
        assert str(tmp_path / name) == temporary_directory() == tempfile.gettempdir()
        tempfile.tempdir = None
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert str(tmp_path / "TEMP") == temporary_directory()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "TMP")
    assert str(tmp_path / "TMP") == temporary_directory()


def test_the_choice_of_tempfile_is_left_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tempfile` stores its first result for the process, and the job may set TMPDIR later."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    temporary_directory()
    assert tempfile.tempdir is None
