"""Facts about the check of debugpy's version."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from relay_agent.cli.doctor import check_debugpy
from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS
from relay_core.errors import ConfigurationError
from relay_core.program.parser import installed_version


def test_the_installed_version_passes() -> None:
    """The debugpy of this environment is found and is one of the checked versions."""
    found = importlib.metadata.version("debugpy")
    assert f"debugpy {found}" == check_debugpy(installed_version("debugpy"))


def test_an_old_version_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed debugpy below the oldest supported version is named with the command that updates it."""
    metadata = tmp_path / "debugpy-1.8.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: debugpy\nVersion: 1.8.2\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigurationError, match="debugpy 1.8.2 is older than 1.8.14, the oldest supported") as caught:
        check_debugpy(installed_version("debugpy"))
    assert "in the job's environment, run: pip install 'debugpy>=1.8.14'" == caught.value.hint


def test_without_debugpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without debugpy cannot be debugged."""
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigurationError, match="debugpy is not installed"):
        check_debugpy(installed_version("debugpy"))


def test_a_newer_version_passes_with_a_note() -> None:
    """A version that is not checked yet usually works, because each private function is looked up first."""
    newest = CHECKED_VERSIONS[1]
    assert f"debugpy 99.1; relay-debug was tested with 1.8.14 to {newest}" == check_debugpy("99.1")
