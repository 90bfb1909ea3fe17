"""Facts about who is at the other end of a Unix socket."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from relay_client.control.server import is_own_user
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import OTHER_UID, needs_second_user

_CONNECT = """
import os, socket, sys
os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.recv(1)
"""


def test_a_process_of_this_user() -> None:
    """The other end of a pair is our own, whether the system shows it or not."""
    one, other = socket.socketpair()
    with one, other:
        assert is_own_user(one)


def test_a_system_that_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either option the private directory decides."""
    monkeypatch.delattr("socket.SO_PEERCRED", raising=False)
    one, other = socket.socketpair()
    with one, other:
        assert is_own_user(one)


def test_a_user_who_cannot_be_determined() -> None:
    """On a system that shows users, an error is a refusal."""
    one, other = socket.socketpair()
    with other:
        one.close()
        assert not is_own_user(one)


@needs_second_user
async def test_a_process_of_another_user(tmp_path: Path) -> None:
    """Somebody else is not accepted, even if the socket's permissions would allow the connection."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory != Path("/tmp") and directory.is_relative_to("/tmp"):
            directory.chmod(0o755)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o666)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _CONNECT, str(path), str(OTHER_UID))
        listener.settimeout(DEADLINE)
        connection, _ = await asyncio.to_thread(listener.accept)
        with connection:
            assert not is_own_user(connection)
            connection.send(b"x")
        await asyncio.wait_for(process.wait(), DEADLINE)
