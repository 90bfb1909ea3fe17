"""This user's name, and the private directory of the user's relay-clients: locks of local ports, and control sockets.

    /tmp/relay-client-1000/           mode 0700
        control-1a2b3c4d.sock         see `relay_client.control.directory`; RELAY_CLIENT_DIR sets another directory
        5678.lock                     see `relay_client.ports.local_port`; always here, because each port exists once

The private directory is in the system's directory for temporary files; on Windows, each user has a separate one. Any
other user can create a directory with this name first, and remove it again; while it is there, relay-clients that start
use the following one. It is also the place for what must outlast a reboot:

    ~/.local/state/relay-debug/       mode 0700; below XDG_STATE_HOME if that is set, and in RELAY_CLIENT_DIR if that is
        mcp-audit.jsonl               see `relay_client.mcp.audit`
"""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from pathlib import Path

DIRECTORY_VARIABLE = "RELAY_CLIENT_DIR"


def login_name() -> str:
    """Return the name of this user; "" if the system does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a uid without a passwd entry, as in some containers; or Windows
        return ""


def user_directory() -> Path:
    """Return the directory for new files, which may not exist yet."""
    return user_directories()[0]


def user_directories() -> list[Path]:
    """Return the directories that may have files of this user's relay-clients; the first is `user_directory`."""
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return [Path(chosen)]
    default, other = Path(tempfile.gettempdir()) / _name(), _state_directory()
    if other is None:
        return [default]
    return [other] if _is_foreign(default) else [default, other]


def shared_directory() -> Path:
    """Return the directory that all relay-clients of this user have in common, regardless of their environment."""
    # TMPDIR may differ between terminals; the returned directory is private.
    parent = "/tmp" if hasattr(os, "getuid") else tempfile.gettempdir()  # noqa: S108 - see above
    return Path(parent) / _name()


def state_directory() -> Path:
    """Return the directory of files that must outlast a reboot; it may not exist yet."""
    if os.environ.get(DIRECTORY_VARIABLE):
        return user_directory()
    return _state_directory() or user_directory()


def _state_directory() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # this user has none
        return None
    default = home / (".local/state" if hasattr(os, "getuid") else "AppData/Local")
    chosen = Path(os.environ.get("XDG_STATE_HOME" if hasattr(os, "getuid") else "LOCALAPPDATA", ""))
    return (chosen if chosen.is_absolute() else default) / "relay-debug"


def _is_foreign(directory: Path) -> bool:
    try:
        require_private(directory)
    except OSError as error:  # otherwise, it does not exist
        return isinstance(error, PermissionError)
    return False


def _name() -> str:
    return f"relay-client-{os.getuid() if hasattr(os, 'getuid') else 0}"


def make_private(directory: Path) -> None:
    """Create a directory that only this user can enter, if it does not exist.

    Raises:
        OSError: it cannot be created, or other users can enter it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(directory)


def require_private(directory: Path) -> None:
    """Check that no other user can create or read files in a directory. Windows protects the directory in other ways.

    Raises:
        PermissionError: other users can enter the directory, or it is not a directory.
        OSError: it does not exist.
    """
    found = directory.lstat()
    is_own = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_own:
        raise PermissionError(f"{directory} is not a private directory of this user")
