"""Facts about the directory of a node's agent."""

import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relay_agent.node.directory import HALF, NodeDirectory
from relay_core.errors import ConfigurationError

MOUNT = 'mount -t tmpfs -o ro none "$TMPDIR" && exec "$@"'


def test_it_is_private(tmp_path):
    """The directory is created with mode 0700 when the lock is acquired."""
    directory = NodeDirectory(tmp_path / "a" / "node", "name")
    assert not directory.root.exists()
    lock = directory.try_lock()
    assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700
    assert lock is not None
    os.close(lock)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_directory_that_others_can_enter(tmp_path, mode):
    """A directory that was there already and is open to others is refused: they could pose as the agent."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node").chmod(mode)
    with pytest.raises(ConfigurationError, match="is not a private directory of this user"):
        NodeDirectory(tmp_path / "node", "name").try_lock()


def test_link_in_its_place(tmp_path):
    """A symbolic link is refused, wherever it leads."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "node").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="is not a private directory"):
        NodeDirectory(tmp_path / "node", "name").try_lock()


def test_path_that_is_too_long(tmp_path):
    """A path that no socket address can hold is refused with the variable that moves it."""
    with pytest.raises(ConfigurationError, match="too long for a socket.*RELAY_NODE_DIR"):
        NodeDirectory(tmp_path / ("x" * 100), "name")


def test_file_in_its_place(tmp_path):
    """A file in place of the directory, or of one of its parents, is an error with its path."""
    (tmp_path / "node").touch()
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/node is not a private directory"):
        NodeDirectory(tmp_path / "node", "name").try_lock()
    with pytest.raises(ConfigurationError, match=f"cannot create {tmp_path}/node/x: Not a directory"):
        NodeDirectory(tmp_path / "node" / "x", "name").try_lock()


def test_one_agent_for_the_same_access(tmp_path, monkeypatch):
    """Equal access leads to one place; another hybrid connection, or another key in the environment, to another."""
    monkeypatch.setenv("RELAY_NODE_DIR", str(tmp_path))
    monkeypatch.delenv("RELAY_CONNECTION_STRING", raising=False)
    tmp_path.chmod(0o700)
    name = NodeDirectory.of({"hc": "a", "namespace": "b"}).name
    assert name == NodeDirectory.of({"namespace": "b", "hc": "a"}).name
    assert name != NodeDirectory.of({"hc": "b", "namespace": "b"}).name
    monkeypatch.setenv("RELAY_CONNECTION_STRING", "x")
    assert name != NodeDirectory.of({"hc": "a", "namespace": "b"}).name


def test_other_node(tmp_path, monkeypatch):
    """Another node's agent has another name in the same directory, and its files are not removed."""
    monkeypatch.setenv("RELAY_NODE_DIR", str(tmp_path / "node"))
    here = NodeDirectory.of({"hc": "a"})
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    there = NodeDirectory.of({"hc": "a"})
    assert here.name[:HALF] != there.name[:HALF]
    assert here.name[HALF:] == there.name[HALF:]
    lock = there.try_lock()
    assert lock is not None
    os.close(lock)
    here.sweep()
    assert there.lock_path.exists()
    NodeDirectory(there.root, there.name[:HALF] + "x").sweep()
    assert not there.lock_path.exists()


@pytest.mark.parametrize("reason", ["taken", "too long"])
def test_default_is_not_usable(tmp_path, monkeypatch, reason):
    """If the directory below TMPDIR is another user's or its path is too long, the next one is used."""
    temporary = tmp_path / ("x" * 100 if reason == "too long" else "tmp")
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RELAY_NODE_DIR", raising=False)
    if reason == "taken":
        (temporary / f"relay-debug-{os.getuid()}").mkdir(mode=0o755)
    monkeypatch.setattr("relay_agent.node.directory.MAX_SOCKET_PATH", len(os.fsencode(tmp_path)) + 40)
    for runtime, root in ((tmp_path / "missing", ".cache"), (tmp_path / "run", "run")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        assert NodeDirectory.of({"hc": "a"}).root == tmp_path / root / "relay-debug"


def test_path_that_is_too_long_without_a_home(tmp_path, monkeypatch):
    """If TMPDIR and HOME are too long for a socket, a directory in /tmp is used."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / ("x" * 100)))
    for name in ("XDG_RUNTIME_DIR", "RELAY_NODE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("relay_agent.node.directory._DIRECTORIES", ("/t",))
    monkeypatch.setattr("relay_agent.node.directory.MAX_SOCKET_PATH", len(os.fsencode(tmp_path)))
    assert NodeDirectory.of({"hc": "a"}).root == Path("/t", f"relay-debug-{os.getuid()}")


def test_read_only_disk(tmp_path):
    """If the directory for temporary files is on a read-only disk, the directory is in the home directory."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace")
    disk = tmp_path / "disk"
    disk.mkdir()
    code = (
        "from relay_agent.node import directory\n"
        f"directory._DIRECTORIES = ({str(disk)!r},)\n"
        "print(directory.NodeDirectory.of({'hc': 'a'}).root)\n"
    )
    variables = {"TMPDIR": str(disk), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": "", "RELAY_NODE_DIR": ""}
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNT, "sh", sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{tmp_path}/.cache/relay-debug\n" == result.stdout


def test_no_default_is_usable(tmp_path, monkeypatch):
    """The error is that of the directory below TMPDIR."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / ("x" * 100)))
    for name in ("XDG_RUNTIME_DIR", "RELAY_NODE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("relay_agent.node.directory._DIRECTORIES", ())
    own = tmp_path / f"relay-debug-{os.getuid()}"
    own.touch()
    monkeypatch.setattr("relay_agent.node.directory.MAX_SOCKET_PATH", len(os.fsencode(own)) + 40)
    with pytest.raises(ConfigurationError, match=f"{own} is not a private directory"):
        NodeDirectory.of({"hc": "a"}).try_lock()


def test_old_settings_file_counts(tmp_path, monkeypatch):
    """If the working directory has a .azrelay.json, agents of different working directories are different."""
    monkeypatch.setenv("RELAY_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.chdir(tmp_path)
    name = NodeDirectory.of({"hc": "a"}).name
    (tmp_path / ".azrelay.json").write_text("{}")
    assert name != NodeDirectory.of({"hc": "a"}).name


def test_lock_is_exclusive(tmp_path):
    """The lock can be acquired once, and again after its descriptor is closed."""
    directory = NodeDirectory(tmp_path / "node", "name")
    lock = directory.try_lock()
    assert lock is not None
    assert directory.try_lock() is None
    os.close(lock)
    again = directory.try_lock()
    assert again is not None
    os.close(again)


def test_lock_whose_file_was_removed(tmp_path):
    """A lock on a removed file has no effect on the lock of the new file."""
    directory = NodeDirectory(tmp_path / "node", "name")
    old = directory.try_lock()
    assert old is not None
    directory.lock_path.unlink()
    new = directory.try_lock()
    assert new is not None
    assert directory.try_lock() is None
    os.close(old)
    os.close(new)


def test_lock_while_others_take_the_directory_along(tmp_path):
    """A lock is acquired, or held by another, even while exiting agents remove the directory repeatedly."""
    directory = NodeDirectory(tmp_path / "node", "name")

    def come_and_go() -> int:
        held = 0
        for _ in range(500):
            if (lock := directory.try_lock()) is not None:
                held += 1
                directory.clean()
                os.close(lock)
        return held

    with ThreadPoolExecutor(3) as agents:
        counts = [agents.submit(come_and_go) for _ in range(3)]
    assert sum(count.result() for count in counts) > 0
    assert not directory.root.exists()


def test_sweep(tmp_path):
    """Files of dead agents are removed, files of running ones are kept."""
    own, dead, living = (NodeDirectory(tmp_path / "node", name) for name in ("nodexx1", "nodexx2", "nodexx3"))
    locks = [own.try_lock(), living.try_lock()]
    for path in (dead.lock_path, dead.socket_path, dead.root / "nodexx2-7.stacks", living.socket_path):
        path.touch()
    own.sweep()
    assert {own.lock_path, living.lock_path, living.socket_path} == set(own.root.iterdir())
    for lock in locks:
        os.close(lock)


def test_clean(tmp_path):
    """All files of one agent are removed; those of another are kept, and then the directory is kept too."""
    one, other = NodeDirectory(tmp_path / "node", "one"), NodeDirectory(tmp_path / "node", "other")
    one.root.mkdir()
    for path in (one.lock_path, one.socket_path, one.root / "one-7.stacks", other.lock_path):
        path.touch()
    one.clean()
    assert list(one.root.iterdir()) == [other.lock_path]
    other.clean()
    assert not one.root.exists()
