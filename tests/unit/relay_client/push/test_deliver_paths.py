"""Facts about the paths at which a local file may be on a node."""

from pathlib import Path

import pytest

from relay_client.push.deliver import absolute_paths, node_paths


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory `real` with a file, a link to the directory, and an empty directory, which is the current one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_file_in_another_directory(tree: Path):
    """It may have the same path on the node."""
    assert (str(tree / "real" / "a.py"),) == node_paths(Path("../real/a.py"))


def test_file_in_the_current_directory(tree: Path, monkeypatch: pytest.MonkeyPatch):
    """It may also be in the directory in which the job was started."""
    monkeypatch.chdir(tree)
    assert (str(tree / "real" / "a.py"), "real/a.py") == node_paths(Path("real/a.py"))


def test_links(tree: Path):
    """A link is tried as it is and as what it leads to; inside the current directory, its own path is the last one."""
    (tree / "here" / "link").symlink_to(tree / "real")
    paths = (str(tree / "here" / "link" / "a.py"), str(tree / "real" / "a.py"))
    assert paths == absolute_paths(Path("link/a.py"))
    assert (*paths, "link/a.py") == node_paths(Path("link/a.py"))
