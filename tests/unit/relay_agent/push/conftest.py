"""A fixture that loads modules whose code is replaced."""

import math
import sys
from pathlib import Path

import pytest

from tests.support.jobs.loaded_module import Load, Loaded


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a text as a module, as if this process had been started later."""
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: math.inf)

    def load_source(source: str) -> Loaded:
        loaded = Loaded(tmp_path / "model.py")
        monkeypatch.setitem(sys.modules, "model", loaded.module)
        loaded.execute(source)
        return loaded

    return load_source
