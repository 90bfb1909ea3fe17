"""The addresses of this user's control sockets: one file for each relay-client, in a private directory of the user.

    control-1a2b3c4d.sock       a Unix socket
    control-1a2b3c4d.json       on systems without Unix sockets: {"port": 50123, "token": "..."}, mode 0600

A file is renamed into place once its relay-client is listening. The relay-client removes the file when it exits. If the
relay-client was killed, the next program that finds that nothing is listening removes the file, at the latest the next
relay-client.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relay_client.user_directory import make_private, require_private, user_directories
from relay_core.value_parsers import is_port

MAX_SOCKET_PATH = 103
"""Maximum number of bytes in a path, without the terminating zero; a Unix socket address holds 108 bytes on Linux and
104 on macOS."""
BACKLOG = 16
_NAME = re.compile(r"control-([0-9a-f]{8})\.(?:sock|json)", re.ASCII)


@dataclass(frozen=True)
class Address:
    """A Unix socket, or a port on 127.0.0.1 with the token that a program must know to use it."""

    path: Path
    """The Unix socket, or the file that contains the port and the token."""
    port: int | None = None
    """None for a Unix socket."""
    token: str | None = field(default=None, repr=False)


class ControlDirectory:
    """The control sockets' address files.

    Args:
        root: Their directory; by default, this user's private directory, and files are also looked for in the one that
            is used while another user has taken its name.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root, *self._others = [root] if root else user_directories()

    def addresses(self) -> Iterator[Address]:
        """Yield the address in each file, without checking whether anything is listening there.

        Raises:
            PermissionError: other users can enter the directory.
        """
        for directory in (self.root, *self._others):
            try:
                require_private(directory)
            except FileNotFoundError:
                continue
            except PermissionError:
                if directory == self.root:
                    raise
                continue
            for path in sorted(directory.glob("control-*")):
                if _NAME.fullmatch(path.name) and (address := _address(path)) is not None:
                    yield address

    def listen(self, client_id: str) -> tuple[socket.socket, Address]:
        """Return a listening socket and its address, which other programs can now find.

        Raises:
            OSError: the directory is not private, or cannot be written to.
        """
        path = self.root / f"control-{client_id}"
        while True:
            try:
                for address in self.addresses():
                    if address.port is None and not _is_listening(address.path):  # its relay-client was killed
                        self.remove(address)
                make_private(self.root)
                return _listen_unix(path) if _has_unix_sockets(path) else _listen_tcp(path)
            except FileNotFoundError:  # another program has just removed the directory, which was empty
                continue

    def remove(self, address: Address) -> None:
        """Remove an address at which nothing is listening any more, and the directory if it is empty."""
        address.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the directory contains other files
            address.path.parent.rmdir()


def _has_unix_sockets(path: Path) -> bool:
    length = len(os.fsencode(path.with_suffix(".sock.new")))
    return hasattr(socket, "AF_UNIX") and hasattr(os, "getuid") and length <= MAX_SOCKET_PATH


def _is_listening(path: Path) -> bool:
    """Return whether a program is listening on a Unix socket; True if that is unknown."""
    if not hasattr(socket, "AF_UNIX"):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # for example, the program is not accepting connections at the moment
            return True
    return True


def _listen_unix(path: Path) -> tuple[socket.socket, Address]:
    new, final = path.with_suffix(".sock.new"), path.with_suffix(".sock")
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    with _listening(socket.AF_UNIX, str(new)) as listener:
        new.rename(final)
    return listener, Address(final)


def _listen_tcp(path: Path) -> tuple[socket.socket, Address]:
    new, final = path.with_suffix(".json.new"), path.with_suffix(".json")
    token = secrets.token_hex(32)
    with _listening(socket.AF_INET, ("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump({"port": port, "token": token}, file)
        new.replace(final)
    return listener, Address(final, port, token)


@contextlib.contextmanager
def _listening(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """Yield a listening socket; it is closed if the block, which makes it known, fails."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
        yield listener
    except BaseException:
        listener.close()
        raise


def _address(path: Path) -> Address | None:
    """Return the address in a file; None if the file has just been removed or is not a control file."""
    if path.suffix == ".sock":
        return Address(path) if hasattr(socket, "AF_UNIX") and path.is_socket() else None
    try:
        found = json.loads(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
    match found:
        case {"port": int(port), "token": str(token)} if is_port(port):
            return Address(path, port, token)
    return None
