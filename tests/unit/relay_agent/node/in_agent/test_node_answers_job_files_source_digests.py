"""Facts about the digests of source files."""

from pathlib import Path

import pytest

from relay_agent.node.in_agent.node_answers import MAX_SOURCE, file_digest
from relay_core.agent_api.requests import FileDigest


def test_digest_of_a_source_file(tmp_path: Path) -> None:
    """A file with Windows line endings has the same digest as one with Unix line endings."""
    windows, unix = tmp_path / "windows.py", tmp_path / "unix.py"
    windows.write_bytes(b"a = 1\r\nb = 2\r\n")
    unix.write_bytes(b"a = 1\nb = 2\n")
    assert file_digest(windows) == file_digest(unix) != FileDigest()


@pytest.mark.parametrize("name", ["absent.py", ".", "large.py", "zero\0byte.py"])
def test_files_without_a_digest(tmp_path: Path, name: str) -> None:
    """A missing file, a directory, a file above the limit, and a path that no file can have are not read."""
    (tmp_path / "large.py").write_bytes(bytes(MAX_SOURCE + 1))
    assert FileDigest() == file_digest(tmp_path / name)
