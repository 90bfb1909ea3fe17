"""Facts about the locks that relay-clients take on their local ports."""

import stat
import sys
from pathlib import Path

import pytest

from relay_client.ports.local_port import PortLock, PortOwner
from relay_core.errors import LocalPortInUse
from tests.support.jobs.processes import job
from tests.support.machine.ports import free_port


def test_a_port_is_locked_once(tmp_path: Path) -> None:
    """A second lock is refused until the first is released."""
    first = PortLock(5678, tmp_path / "locks")
    with pytest.raises(LocalPortInUse):
        PortLock(5678, tmp_path / "locks")
    other = PortLock(5679, tmp_path / "locks")
    first.release()
    again = PortLock(5678, tmp_path / "locks")
    assert [False, True, True] == [first.is_held, other.is_held, again.is_held]
    other.release()
    again.release()
    assert not (tmp_path / "locks").exists()


def test_the_directory_is_private(tmp_path: Path) -> None:
    """Only this user can enter it."""
    lock = PortLock(5678, tmp_path / "locks")
    assert 0o700 == stat.S_IMODE((tmp_path / "locks").stat().st_mode)
    lock.release()


def test_the_directory_of_the_user_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relay-clients with different directories and different temporary ones see each other's locks."""
    port = free_port()
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path / "one"))
    first = PortLock(port)
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path / "two"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(LocalPortInUse):
        PortLock(port)
    first.release()


def test_another_directory_is_used_if_need_be(tmp_path: Path) -> None:
    """Where the common directory cannot be used, the next one is."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    lock = PortLock(5678, tmp_path / "open", tmp_path / "own")
    assert (True, True) == (lock.is_held, (tmp_path / "own" / "5678.lock").exists())
    lock.release()


async def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    """However a relay-client ends, its ports can be locked again."""
    code = """
    from pathlib import Path
    from relay_client.ports.local_port import PortLock
    lock = PortLock(5678, Path(sys.argv[1]))
    print(lock.is_held, flush=True)
    input()
    """
    async with job(code, str(tmp_path / "locks")) as running:
        assert "True" == await running.line()
        with pytest.raises(LocalPortInUse, match=rf"by another relay-client \(pid {running.process.pid}, "):
            PortLock(5678, tmp_path / "locks")
        running.process.kill()
        await running.process.wait()
        lock = PortLock(5678, tmp_path / "locks")
        assert lock.is_held
        lock.release()


def test_a_directory_of_others_is_not_used(tmp_path: Path) -> None:
    """If other users can enter the directory, nothing is locked, without an error."""
    root = tmp_path / "locks"
    root.mkdir()
    root.chmod(0o777)
    lock = PortLock(5678, root)
    assert not lock.is_held
    lock.release()


@pytest.mark.parametrize(
    "content", [b"", b"4711", b"{", b'{"pid": 4711}', b"\xff", b'{"pid": "4711", "user": "", "since": 1.0}']
)
def test_a_lock_without_an_owner(content: bytes, tmp_path: Path) -> None:
    """A lock file whose content names no process is refused all the same, without an owner."""
    lock = PortLock(5678, tmp_path / "locks")
    (tmp_path / "locks" / "5678.lock").write_bytes(content)
    with pytest.raises(LocalPortInUse, match=r"by another relay-client\. hint: stop"):
        PortLock(5678, tmp_path / "locks")
    lock.release()


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not know the user's name, the process and the time remain."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4242424)
    owner = PortOwner.this_process()
    assert owner == PortOwner.decode(owner.encode())
    assert ("", f"pid {owner.pid}, since ") == (owner.user, str(owner)[:-5])


def test_a_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `fcntl`, as on Windows, ports are used without locks."""
    monkeypatch.setitem(sys.modules, "fcntl", None)  # its import raises ImportError
    assert [False, False] == [PortLock(5678, tmp_path / "locks").is_held for _ in range(2)]


def test_a_system_that_follows_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without O_NOFOLLOW, a port is locked as well: only this user can put a link into the directory."""
    monkeypatch.delattr("os.O_NOFOLLOW")
    lock = PortLock(5678, tmp_path / "locks")
    assert lock.is_held
    lock.release()
