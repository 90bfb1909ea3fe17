"""Facts about files that hold a secret."""

from pathlib import Path

import pytest

from relay_core.auth.sources import MAX_SECRET_BYTES, read_secret_file
from relay_core.errors import ConfigurationError


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text("hello\n")
    return path


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_files_that_others_can_read_are_refused(secret_file: Path, mode: int) -> None:
    """A secret that other users can read is refused with the command that mends it."""
    secret_file.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"other users can read.*chmod 600 {secret_file}"):
        read_secret_file(str(secret_file))


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    """A wrong path is named."""
    with pytest.raises(ConfigurationError, match="cannot read .*nowhere: No such file"):
        read_secret_file(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * (MAX_SECRET_BYTES + 1)])
def test_a_file_that_is_no_text_is_refused(secret_file: Path, content: bytes) -> None:
    """A binary or huge file is not a secret."""
    secret_file.write_bytes(content)
    with pytest.raises(ConfigurationError):
        read_secret_file(str(secret_file))


def test_a_byte_order_mark_is_skipped(secret_file: Path) -> None:
    """Files written by Windows editors work."""
    secret_file.write_bytes(b"\xef\xbb\xbfhello\r\n")
    assert read_secret_file(str(secret_file)) == "hello"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_encodings_of_windows(secret_file: Path, encoding: str) -> None:
    """A file that PowerShell has written is read, with or without a byte order mark."""
    secret_file.write_bytes("hello\r\n".encode(encoding))
    assert read_secret_file(str(secret_file)) == "hello"
