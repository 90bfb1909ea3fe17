"""Facts about the files by which programs find the control sockets of this user's relay-clients."""

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from relay_client.control.directory import Address, ControlDirectory
from tests.support.machine.deadline import DEADLINE


def closed(listening: tuple[socket.socket, Address]) -> Address:
    listening[0].close()
    return listening[1]


def test_an_endpoint_is_found_and_removed(tmp_path: Path) -> None:
    """While it listens its address is there; without files the directory goes, too."""
    directory = ControlDirectory(tmp_path / "own")
    assert [] == list(directory.addresses())
    (one, first), (other, second) = (directory.listen(name) for name in ("1a2b3c4d", "5e6f7a8b"))
    with one, other:
        assert [first, second] == list(directory.addresses())
    assert Address(tmp_path / "own" / "control-1a2b3c4d.sock") == first
    assert 0o700 == stat.S_IMODE((tmp_path / "own").stat().st_mode)
    directory.remove(first)
    assert [second] == list(directory.addresses())
    directory.remove(second)
    assert not (tmp_path / "own").exists()


def test_endpoints_of_killed_clients(tmp_path: Path) -> None:
    """The next relay-client removes them, and leaves those of running relay-clients, even if these accept nothing."""
    directory = ControlDirectory(tmp_path / "own")
    running, first = directory.listen("1a2b3c4d")
    killed = [closed(directory.listen(f"0000000{number}")) for number in range(2)][-1]
    assert [killed, first] == list(directory.addresses())
    running.listen(0)
    with running, socket.socket(socket.AF_UNIX) as waiting:
        waiting.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the queue is full already
            waiting.connect(str(first.path))
        second = closed(directory.listen("5e6f7a8b"))
        assert [first, second] == list(directory.addresses())


def test_a_directory_that_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A starting relay-client listens even if another program has just removed the directory, which was empty."""
    directory = ControlDirectory(tmp_path / "own")
    errors = [FileNotFoundError()]

    def addresses() -> list[Address]:
        if errors:
            raise errors.pop()
        return []

    monkeypatch.setattr(directory, "addresses", addresses)
    assert closed(directory.listen("1a2b3c4d")).path.exists()


@pytest.mark.parametrize("missing", ["AF_UNIX", "getuid"])
def test_without_unix_sockets(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system lacks them, a port of this machine is used, with a token in a file of this user."""
    module = "socket" if missing == "AF_UNIX" else "os"
    monkeypatch.delattr(f"{module}.{missing}")
    directory = ControlDirectory(tmp_path / "own")
    listener, address = directory.listen("1a2b3c4d")
    assert address.port is not None
    assert address.token is not None
    with listener, socket.create_connection(("127.0.0.1", address.port), timeout=DEADLINE):
        assert [address] == list(directory.addresses())
    assert 0o600 == stat.S_IMODE(address.path.stat().st_mode)
    assert 64 == len(address.token)
    assert address.token not in repr(address)


def test_a_long_path_needs_a_port(tmp_path: Path) -> None:
    """The address of a Unix socket has room for about a hundred bytes."""
    assert closed(ControlDirectory(tmp_path / ("d" * 100)).listen("1a2b3c4d")).port is not None


def test_a_directory_of_others_is_not_used(tmp_path: Path) -> None:
    """If other users can enter the directory, they could put an endpoint there."""
    tmp_path.chmod(0o755)
    directory = ControlDirectory(tmp_path)
    with pytest.raises(PermissionError, match="is not a private directory"):
        directory.listen("1a2b3c4d")
    with pytest.raises(PermissionError):
        list(directory.addresses())


def test_other_files_are_ignored(tmp_path: Path) -> None:
    """Locks, damaged files and files that are still being written are not endpoints."""
    tmp_path.chmod(0o700)
    for name in ("5678.lock", "control-1a2b3c4d.sock.new", "control-1a2b3c4d.json", "control-5e6f7a8b.json"):
        (tmp_path / name).write_text("{" if "1a2b" in name else '{"port": "5678"}')
    (tmp_path / "control-0a1b2c3d.sock").mkdir()
    (tmp_path / "control-00000001.json").write_text('{"port": 99999999999, "token": "x"}')
    assert [] == list(ControlDirectory(tmp_path).addresses())
    closed(ControlDirectory(tmp_path).listen("5e6f7a8c"))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="each user has an own directory for temporary files")
def test_socket_from_before_a_name_was_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay-client is found that started while another user had taken the name of its directory."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken = tmp_path / f"relay-client-{os.getuid()}"
    taken.mkdir(mode=0o755)
    listener, address = ControlDirectory().listen("1a2b3c4d")
    with listener:
        taken.rmdir()
        assert [address] == list(ControlDirectory().addresses())
        other, second = ControlDirectory().listen("5e6f7a8b")
        with other:
            assert [second, address] == list(ControlDirectory().addresses())
    (tmp_path / "state" / "relay-debug").chmod(0o755)
    assert [second] == list(ControlDirectory().addresses())


def test_a_unix_socket_on_a_system_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can connect to it, so its address is not listed, and the file stays."""
    directory = ControlDirectory(tmp_path / "own")
    first = closed(directory.listen("1a2b3c4d"))
    monkeypatch.delattr("socket.AF_UNIX")
    second = closed(directory.listen("5e6f7a8b"))
    assert [second] == list(directory.addresses())
    assert first.path.exists()
