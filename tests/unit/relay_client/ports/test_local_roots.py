"""Facts about finding a job's code on this machine."""

from pathlib import Path

import pytest

from relay_client.ports.local_roots import find_local_root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "folder"
    (directory / "package" / "part").mkdir(parents=True)
    for name in ("train.py", "package/main.py"):
        (directory / name).touch()
    return directory


@pytest.mark.parametrize("script", ["train.py", "train", "package.main", "package.part", "package"])
def test_the_folder_of_the_editor_comes_first(here: Path, folder: Path, script: str) -> None:
    """Scripts, modules and packages are found."""
    (here / "train.py").touch()
    assert str(folder) == find_local_root(str(folder), script)


def test_the_current_directory_comes_second(here: Path, folder: Path) -> None:
    """Where relay-client was started, the code often is."""
    (here / "other.py").touch()
    assert [str(here), str(here)] == [find_local_root(root, "other.py") for root in (str(folder), "")]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("script", ["absent.py", ""])
def test_code_that_is_not_here(folder: Path, script: str) -> None:
    """Nothing is guessed."""
    assert "" == find_local_root(str(folder), script)
