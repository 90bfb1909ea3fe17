"""Facts about the private directory of a user's relay-clients."""

import os
import tempfile
from pathlib import Path

import pytest

from relay_client.user_directory import (
    make_private,
    require_private,
    shared_directory,
    state_directory,
    user_directory,
)


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory for temporary files, with the user's number, unless the variable names another."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    assert user_directory().parent == Path(tempfile.gettempdir())
    assert user_directory().name.startswith("relay-client-")
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path))
    assert tmp_path == user_directory()


def test_another_user_has_taken_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that others could use is replaced by the state directory, if this user has a home."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken = tmp_path / f"relay-client-{os.getuid()}"
    taken.mkdir(mode=0o755)
    assert tmp_path / "home" / ".local" / "state" / "relay-debug" == user_directory()
    monkeypatch.setattr(Path, "home", _no_home)
    assert taken == user_directory() == state_directory()


def test_what_all_relay_clients_have_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the variable nor TMPDIR changes it; on Windows, each user has an own directory for temporary files."""
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Path("/tmp") / f"relay-client-{os.getuid()}" == shared_directory()
    monkeypatch.delattr("os.getuid")
    assert tmp_path / "relay-client-0" == shared_directory()


def test_what_outlasts_a_reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the user's state directory, unless a variable selects another one or the user has no home."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for relative in ("", "state"):  # the specification demands an absolute path
        monkeypatch.setenv("XDG_STATE_HOME", relative)
        assert tmp_path / ".local" / "state" / "relay-debug" == state_directory()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert tmp_path / "state" / "relay-debug" == state_directory()
    monkeypatch.setattr(Path, "home", _no_home)
    assert user_directory() == state_directory()
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path))
    assert tmp_path == state_directory()


def _no_home() -> Path:
    raise RuntimeError("no home directory")


def test_it_is_private(tmp_path: Path) -> None:
    """A directory or link that others could use is refused, and so is a file."""
    make_private(tmp_path / "own")
    require_private(tmp_path / "own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "open").mkdir(mode=0o755)
    for name in ("link", "open"):
        with pytest.raises(PermissionError, match="is not a private directory of this user"):
            require_private(tmp_path / name)


def test_without_user_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has none: the profile's directory for temporary files belongs to the user."""
    monkeypatch.delattr("os.getuid")
    assert "relay-client-0" == user_directory().name
    (tmp_path / "open").mkdir(mode=0o755)
    require_private(tmp_path / "open")
