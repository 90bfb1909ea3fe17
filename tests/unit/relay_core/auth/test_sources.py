"""Facts about where connection strings come from."""

from pathlib import Path

import pytest

from relay_core.auth.sources import MAX_SECRET_BYTES, find_connection_string, read_secret_file
from relay_core.errors import ConfigurationError
from tests.support import secrets


def connection_string(host: str) -> str:
    return f"Endpoint=sb://{host};SharedAccessKeyName=k;SharedAccessKey={secrets.new_key()};EntityPath=myhc"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "connection"
    path.touch(mode=0o600)
    path.write_text(connection_string("from-file") + "\n")
    return path


def test_explicit_text_comes_first(secret_file: Path) -> None:
    """An explicit string wins over everything else."""
    found = find_connection_string(text=connection_string("from-flag"), file=str(secret_file), environ={})
    assert found.host == "from-flag"


def test_an_explicit_file_beats_the_environment(secret_file: Path) -> None:
    """A file named on the command line wins over the environment."""
    environ = {"RELAY_CONNECTION_STRING": connection_string("from-environment")}
    assert find_connection_string(file=str(secret_file), environ=environ).host == "from-file"


def test_the_environment_beats_its_file(secret_file: Path) -> None:
    """RELAY_CONNECTION_STRING wins over RELAY_CONNECTION_STRING_FILE."""
    environ = {
        "RELAY_CONNECTION_STRING": connection_string("from-environment"),
        "RELAY_CONNECTION_STRING_FILE": str(secret_file),
    }
    assert find_connection_string(environ=environ).host == "from-environment"


def test_the_file_of_the_environment(secret_file: Path) -> None:
    """RELAY_CONNECTION_STRING_FILE is the last resort."""
    assert find_connection_string(environ={"RELAY_CONNECTION_STRING_FILE": str(secret_file)}).host == "from-file"


def test_nothing_configured_is_explained() -> None:
    """Without any source the error names them all."""
    with pytest.raises(ConfigurationError, match="no connection string.*RELAY_CONNECTION_STRING.*_FILE.*0600"):
        find_connection_string(environ={})


def test_the_hybrid_connection_is_checked(secret_file: Path) -> None:
    """--hc must agree with the string's EntityPath."""
    with pytest.raises(ConfigurationError, match="not for 'other'"):
        find_connection_string(file=str(secret_file), environ={}, hc="other")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_files_that_others_can_read_are_refused(secret_file: Path, mode: int) -> None:
    """A secret that other users can read is refused with the command that mends it."""
    secret_file.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"others can read.*chmod 600 {secret_file}"):
        read_secret_file(str(secret_file))


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    """A wrong path is named."""
    with pytest.raises(ConfigurationError, match="cannot read .*nowhere: No such file"):
        read_secret_file(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * (MAX_SECRET_BYTES + 1)])
def test_a_file_that_is_no_text_is_refused(secret_file: Path, content: bytes) -> None:
    """A binary or huge file is not a connection string."""
    secret_file.write_bytes(content)
    with pytest.raises(ConfigurationError):
        read_secret_file(str(secret_file))


def test_a_byte_order_mark_is_skipped(secret_file: Path) -> None:
    """Files written by Windows editors work."""
    secret_file.write_bytes(b"\xef\xbb\xbfhello\r\n")
    assert read_secret_file(str(secret_file)) == "hello"
