"""Facts about looking up one TCP connection in the kernel."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay_core.socket_tables import DiagSocket, SocketQueries, SocketTables, own_user
from tests.support.jobs.processes import ROOT
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import OTHER_UID, needs_queries, needs_second_user


def find_connection(local: tuple[str, int], remote: tuple[str, int]) -> DiagSocket | None:
    queries = SocketQueries()
    try:
        return queries.find_connection(local, remote)
    finally:
        queries.close()


pytestmark = needs_queries


@dataclass
class Connected:
    """Two ends of a connection, and the listener that has accepted it."""

    client: socket.socket
    accepted: socket.socket
    listener: socket.socket


@pytest.fixture(params=["127.0.0.1", "::1"])
def connected(request: pytest.FixtureRequest) -> Iterator[Connected]:
    """A connection to a listener of this process."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        accepted, _ = listener.accept()
        with client, accepted:
            yield Connected(client, accepted, listener)


def test_tables_are_not_read(connected: Connected) -> None:
    """The owner of a connection is found without reading all sockets of the machine, the first time as well."""
    before = open_tables()  # of other tests in this process
    with SocketTables() as tables:
        assert own_user() == tables.peer_owner(*addresses(connected.accepted))
        assert tables.shows_owners
        assert before == open_tables()


def open_tables() -> list[str]:
    """Return the numbers of this process's descriptors of the tables."""
    open_files = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [path.name for path in open_files if "/net/tcp" in str(path.readlink())]


def addresses(end: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    return end.getsockname()[:2], end.getpeername()[:2]


def test_both_ends(connected: Connected) -> None:
    """Each end is found with its user and its inode."""
    for end in (connected.client, connected.accepted):
        assert (os.geteuid(), os.fstat(end.fileno()).st_ino) == find_connection(*addresses(end))


def test_a_closed_end_belongs_to_no_process(connected: Connected) -> None:
    """An end that its program has closed has no inode, as long as the kernel knows it."""
    own, peer = addresses(connected.accepted)
    connected.client.close()
    found = find_connection(peer, own)
    assert found is None or 0 == found.inode


def test_an_end_that_is_not_accepted_belongs_to_no_process(connected: Connected) -> None:
    """A connection in a listener's queue has no inode."""
    with socket.create_connection(connected.listener.getsockname()[:2]) as waiting:
        own, peer = addresses(waiting)
        found = find_connection(peer, own)
        assert found is not None
        assert 0 == found.inode


def test_a_listener_is_not_a_connection(connected: Connected) -> None:
    """For addresses without a connection the kernel returns the port's listener, which is not one."""
    host, port = connected.listener.getsockname()[:2]
    assert find_connection((host, port), (host, 1)) is None


AS_OTHER_USER = f"""
import os, socket, sys
sys.path.insert(0, {str(ROOT)!r})
from relay_core.socket_tables import SocketQueries
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    os.setgid({OTHER_UID})
    os.setuid({OTHER_UID})
    print(SocketQueries().find_connection(client.getsockname(), client.getpeername()).uid)
"""


@needs_second_user
def test_no_right_is_needed() -> None:
    """A user without any rights sees the sockets of others."""
    output = subprocess.run(
        [sys.executable, "-c", AS_OTHER_USER], capture_output=True, check=True, text=True, timeout=DEADLINE
    )
    assert "0\n" == output.stdout
