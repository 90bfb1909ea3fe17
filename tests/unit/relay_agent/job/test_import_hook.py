"""Facts about functions that are called after an import."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from relay_agent.job.import_hook import after_import

NAME = "relay_test_imported"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that is not imported yet; the import system is the same at the end."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield path
    sys.modules.pop(NAME, None)
    assert before == sys.meta_path


@pytest.mark.usefixtures("source")
def test_module_that_is_imported_later() -> None:
    """The function gets the executed module once; a second request for the same module does not count."""
    found: list[ModuleType] = []
    after_import(NAME, found.append)
    after_import(NAME, found.append)
    importlib.import_module("json")
    assert [] == found
    module = importlib.import_module(NAME)
    assert [module] == found
    assert 1 == found[0].value
    assert "exec_module" not in vars(module.__loader__)


@pytest.mark.usefixtures("source")
def test_module_that_is_imported_already() -> None:
    """The function is called at once."""
    module = importlib.import_module(NAME)
    found: list[ModuleType] = []
    after_import(NAME, found.append)
    assert [module] == found


def test_module_that_does_not_exist() -> None:
    """The import fails as it would have, and the function waits."""
    before = list(sys.meta_path)
    after_import(NAME, lambda _module: None)
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{NAME}'"):
        importlib.import_module(NAME)
    added = [finder for finder in sys.meta_path if finder not in before]
    assert 1 == len(added)
    sys.meta_path.remove(added[0])


def test_module_whose_execution_fails(source: Path) -> None:
    """The function is called after the next import, which succeeds."""
    source.write_text("raise LookupError\n")
    found: list[ModuleType] = []
    after_import(NAME, found.append)
    with pytest.raises(LookupError):
        importlib.import_module(NAME)
    assert [] == found
    source.write_text("value = 22\n")
    importlib.invalidate_caches()
    assert [importlib.import_module(NAME)] == found
