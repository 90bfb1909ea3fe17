"""Private directory with the lock, the socket and the files through which the processes of a node reach their agent.

    /tmp/relay-debug-1000/            mode 0700; RELAY_NODE_DIR sets another directory
        k7qd3mx4p2na.lock             locked (flock) by the agent for as long as it runs
        k7qd3mx4p2na.sock             the Unix socket that the agent listens on

The first half of a file name identifies the node, because nodes and containers may share the directory (TMPDIR in a
home directory, a mounted volume), but an agent cannot serve processes of other nodes: it could not see or signal them.
The second half identifies the agent, which processes with the same hybrid connection and credentials share. Both are
digests, which reveal nothing.

Any user can create `/tmp/relay-debug-1000` before its owner does. The agent's directory is then another one, below
XDG_RUNTIME_DIR or the home directory. The same applies if the path is too long for a socket, or on a read-only disk.

If the lock is free, no agent is running. Any remaining files are from an agent that was killed, and the next agent of
this user on this node removes them when it exits. Only the process that holds the lock removes the lock file. After a
process has locked a file, it checks that the path of the lock file still refers to this file.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path

from relay_agent.job.gevent_originals import json, os, socket
from relay_agent.job.own_descriptor import above_streams
from relay_core.access_settings import ACCESS_VARIABLES
from relay_core.errors import ConfigurationError

NODE_DIR_VARIABLE = "RELAY_NODE_DIR"
STARTER_VARIABLE = "RELAY_AGENT_STARTER"
"""Set in the agent's environment: pid of the process that started it, which may exit before it registers."""
MAX_SOCKET_PATH = 103
"""Maximum length in bytes of the socket path, without the terminating zero; a Unix socket address has room for 108
bytes on Linux and for 104 on macOS.
"""
HALF = 6
"""Number of characters in each half of a name, with 30 bits of a digest; the path of a socket must be short."""
_OLD_CONFIG_FILE = ".azrelay.json"


class NodeDirectory:
    """The files of one agent in the node's directory.

    Args:
        root: The directory; `try_lock` creates it if it is missing.
        name: File name of the agent, without suffix.

    Raises:
        ConfigurationError: the path is too long for a socket.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.socket_path = root / f"{name}.sock"
        """The Unix socket that the agent listens on."""
        self.lock_path = root / f"{name}.lock"
        """The file that the agent locks."""
        if _is_too_long(root, name):
            raise ConfigurationError(
                f"the path '{root}' is too long for a socket", hint=f"set {NODE_DIR_VARIABLE} to a shorter path"
            )

    @classmethod
    def of(cls, access: Mapping[str, object]) -> NodeDirectory:
        """Return the files of the agent for these access settings and this process's environment."""
        inherited = {name: value for name, value in os.environ.items() if name in ACCESS_VARIABLES}
        here = os.getcwd() if os.path.exists(_OLD_CONFIG_FILE) else ""
        text = json.dumps([dict(access), inherited, here], sort_keys=True, default=str)
        name = _digest(_node()) + _digest(text)
        if chosen := os.environ.get(NODE_DIR_VARIABLE):
            return cls(Path(chosen), name)
        roots = _default_roots()
        return cls(next((root for root in roots if _is_usable(root, name)), roots[0]), name)

    def require_private(self) -> None:
        """Check that no other user can impersonate the agent in this directory.

        Raises:
            ConfigurationError: other users can enter the directory, or the path is not a directory.
            FileNotFoundError: the directory does not exist.
        """
        if not _is_private(self.root):
            raise ConfigurationError(
                f"{self.root} is not a private directory of this user",
                hint=f"remove it, or set {NODE_DIR_VARIABLE} to a directory with mode 0700",
            )

    def try_lock(self) -> int | None:
        """Return a descriptor that holds the lock until it is closed, or None if an agent holds the lock.

        Raises:
            ConfigurationError: the directory is not private or cannot be created, or the system has no file locks.
        """
        if os.name != "posix":
            raise ConfigurationError("debugging a job needs file locks and Unix sockets", hint="run the job on Linux")
        import fcntl  # noqa: PLC0415 - not available on Windows

        while True:
            try:
                descriptor = self._open_lock()
            except FileNotFoundError:  # an exiting agent has just removed the directory
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(descriptor):
                return descriptor
            os.close(descriptor)

    def clean(self) -> None:
        """Remove the agent's files, and the directory if it is empty; the caller holds the lock."""
        for path in (*self.root.glob(f"{self.name}-*"), self.socket_path, self.lock_path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another agent has files in it
            self.root.rmdir()

    def sweep(self) -> None:
        """Remove the files of other agents on this node that have exited.

        Locks of other nodes are not tried: some shared file systems show them as free.
        """
        for path in list(self.root.glob(f"{self.name[:HALF]}*.lock")):
            other = NodeDirectory(self.root, path.stem)
            if (lock := other.try_lock()) is not None:
                other.clean()
                os.close(lock)

    def _open_lock(self) -> int:
        try:
            with contextlib.suppress(FileExistsError):
                self.root.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot create {self.root}: {error.strerror}",
                hint=f"set {NODE_DIR_VARIABLE} to a directory that you own",
            ) from error
        self.require_private()
        return above_streams(os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.lock_path.stat())
        except FileNotFoundError:
            return False


def _user_id() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_too_long(root: Path, name: str) -> bool:
    return len(os.fsencode(root / f"{name}.sock")) > MAX_SOCKET_PATH


def _digest(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode("ascii")[:HALF].lower()


def _node() -> str:
    """Return what distinguishes this node or container from all others that may share a directory with it."""
    parts = [socket.gethostname()]  # differs between copies of a virtual machine, which have the same boot_id
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))  # containers with the network of their node
    return " ".join(parts)


def _default_roots() -> list[Path]:
    """Return the directories of which the first usable one is the default."""
    roots = [Path(temporary_directory()) / f"relay-debug-{_user_id()}"]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.access(runtime, os.W_OK | os.X_OK):  # containers may inherit the variable without the directory
        roots.append(Path(runtime) / "relay-debug")
    with contextlib.suppress(RuntimeError):  # this user has no home directory
        roots.append(Path.home() / ".cache" / "relay-debug")
    return roots + [Path(each) / roots[0].name for each in _DIRECTORIES]  # TMPDIR may be too long for a socket


def _is_usable(root: Path, name: str) -> bool:
    try:
        return not _is_too_long(root, name) and _is_private(root)
    except FileNotFoundError:
        existing = next(parent for parent in root.absolute().parents if os.path.isdir(parent))
        return os.access(existing, os.W_OK | os.X_OK)  # not on a read-only disk, even for root
    except OSError:
        return False


def _is_private(root: Path) -> bool:
    """Return whether only this user can create files in a directory.

    Raises:
        FileNotFoundError: it does not exist.
    """
    found = root.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == _user_id() and not found.st_mode & 0o077


# The system's directory for temporary files, without the module `tempfile`.
#
# `tempfile.gettempdir()` stores its result for the whole process. If it were called here before the job sets TMPDIR,
# the job's own temporary files would be in another directory than without relay-debug.

_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_DIRECTORIES = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - as in `tempfile`; callers make private directories


def temporary_directory() -> str:
    """Return the first directory of those that `tempfile` considers in which this process may create files."""
    named = [os.environ[name] for name in _VARIABLES if os.environ.get(name)]
    for path in (*map(os.path.abspath, named), *_DIRECTORIES):
        if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return str(path)
    return _DIRECTORIES[0]
