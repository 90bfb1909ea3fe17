"""Facts about the owner of a TCP socket of this machine."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_core.socket_tables import (
    OwnersNotShown,
    SocketTables,
    listener_owners,
    own_user,
    parse_table,
    shared_tables,
)
from tests.support.jobs.processes import ROOT
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.no_descriptors import no_descriptors
from tests.support.machine.other_user import OTHER_UID, listening_stranger, needs_owners, needs_second_user
from tests.support.machine.ports import free_port

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOOPBACK = "0100007F" if sys.byteorder == "little" else "7F000001"
MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"


def row(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    """Return a line as the kernel writes it."""
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0 20 4\n"


@contextlib.contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield accepted, client


def owner_at_other_end(tables: SocketTables, end: socket.socket) -> int | None:
    return tables.peer_owner(end.getsockname(), end.getpeername())


@needs_owners
def test_a_listener_of_this_process() -> None:
    """A listener belongs to the user of the process that opened it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert {own_user()} == shared_tables().listener_owners(server.getsockname()[1])


@needs_owners
@needs_second_user
async def test_a_listener_of_another_user() -> None:
    """A listener of another user is shown with that user's uid."""
    port = free_port()
    async with listening_stranger(port):
        assert {OTHER_UID} == shared_tables().listener_owners(port)


@needs_owners
def test_a_port_without_listener_has_no_owner() -> None:
    """A port that is bound without listening has no owner."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert set() == shared_tables().listener_owners(bound.getsockname()[1])


@needs_owners
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_both_ends_of_a_connection_have_an_owner(family: socket.AddressFamily) -> None:
    """The other end of a connection is found, also if a program uses an IPv6 socket for an IPv4 address."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as client:
        if family == socket.AF_INET6:
            client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        port = server.getsockname()[1]
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        connection, peer = server.accept()
        with connection:
            assert own_user() == shared_tables().peer_owner(connection.getsockname(), peer)
            assert own_user() == shared_tables().peer_owner(client.getsockname()[:2], client.getpeername()[:2])


@needs_owners
def test_connected_programs() -> None:
    """A port has a client until that has closed its connection, whether the server has closed it or not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not shared_tables().has_client(port)
        with socket.create_connection(server.getsockname()):
            assert shared_tables().has_client(port)
            connection, _ = server.accept()
        with connection:
            assert not shared_tables().has_client(port)


@pytest.fixture(params=["looked up", "in the table"])
def only_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SocketTables]:
    """Tables for which nothing is decided yet, where a connection is found in one way only."""
    if request.param == "in the table":
        monkeypatch.delattr(socket, "AF_NETLINK")
    else:
        monkeypatch.setattr("relay_core.socket_tables.PROC_NET", tmp_path)
    with SocketTables() as tables:
        yield tables


@needs_owners
def test_a_connection_is_found_in_either_way(only_way: SocketTables) -> None:
    """The owner is known if either the kernel answers queries or its tables can be read."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        assert owner_at_other_end(only_way, client) is None
        connection, peer = server.accept()
        with connection:
            assert own_user() == owner_at_other_end(only_way, client)
            assert own_user() == owner_at_other_end(only_way, connection)
            client.close()
            assert only_way.peer_owner(connection.getsockname(), peer) is None


@needs_owners
def test_a_lookup_needs_no_descriptor(only_way: SocketTables) -> None:
    """Owners are known while no descriptor is left, once it is decided that this system shows them."""
    assert only_way.shows_owners
    with connection() as (accepted, _), no_descriptors():
        assert own_user() == owner_at_other_end(only_way, accepted)


@needs_owners
def test_without_descriptors_nothing_is_decided(only_way: SocketTables) -> None:
    """A program that starts without descriptors cannot determine owners, and does so as soon as it has some again."""
    with connection() as (accepted, _):
        with no_descriptors():
            assert only_way.shows_owners
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                owner_at_other_end(only_way, accepted)
        assert own_user() == owner_at_other_end(only_way, accepted)


@needs_owners
def test_broken_descriptors_are_replaced(only_way: SocketTables) -> None:
    """If something has closed the descriptors, they are opened again; if that fails, the owner is not known."""
    with connection() as (accepted, _):
        before = descriptors()
        assert only_way.shows_owners
        for _ in range(2):  # the second time after a failure
            for kept in descriptors() - before:
                os.close(kept)
            with no_descriptors(), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                owner_at_other_end(only_way, accepted)
            assert own_user() == owner_at_other_end(only_way, accepted)
            for kept in descriptors() - before:
                os.close(kept)
            assert own_user() == owner_at_other_end(only_way, accepted)


def descriptors() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()}


@needs_owners
def test_a_table_that_changes_later_turns_no_check_off(tmp_path: Path) -> None:
    """After the decision, a table that is missing or malformed is an error, not a system that shows nothing."""
    (tmp_path / "tcp").symlink_to("/proc/net/tcp")
    with SocketTables(tmp_path) as tables, connection() as (accepted, client):
        assert own_user() == owner_at_other_end(tables, accepted)
        tables.close()
        (tmp_path / "tcp").unlink()
        with pytest.raises(FileNotFoundError):
            owner_at_other_end(tables, accepted)
        ports = [end.getsockname()[1] for end in (accepted, client)]
        (tmp_path / "tcp").write_text(HEADER + "".join(f"   0: 0100007F:{port:04X} 0\n" for port in ports))
        with pytest.raises(OSError, match="unknown form"):
            owner_at_other_end(tables, accepted)
        with pytest.raises(OSError, match="unknown form"):
            tables.listener_owners(ports[0])
        assert tables.shows_owners


@needs_owners
def test_a_connection_that_is_not_accepted_belongs_to_nobody() -> None:
    """A connection in a listener's queue has no owner: the kernel shows it with the uid 0 or the listener's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        assert shared_tables().peer_owner(client.getsockname(), client.getpeername()) is None


@needs_owners
def test_a_peer_that_has_closed_its_socket_belongs_to_nobody() -> None:
    """What a program has sent before it closed its socket cannot be attributed to a user."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"evaluate")
        connection, peer = server.accept()
        with connection:
            assert shared_tables().peer_owner(connection.getsockname(), peer) is None


@pytest.mark.parametrize("tables", [None, "", "   0: 0100007F:162E 0\n"])
def test_a_system_that_does_not_show_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: str | None
) -> None:
    """A system without tables, or with tables that do not list this program's connections, shows no owners."""
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    if tables is not None:
        (tmp_path / "tcp").write_text(HEADER + tables)
    with SocketTables(tmp_path) as shown:
        assert not shown.shows_owners
        with pytest.raises(OwnersNotShown):
            shown.listener_owners(5678)
        with pytest.raises(OwnersNotShown):
            shown.peer_owner(("127.0.0.1", 5678), ("127.0.0.1", 40000))


IN_A_FORKED_CHILD = f"""
import os, socket, sys
sys.path.insert(0, {str(ROOT)!r})
from relay_core.socket_tables import shared_tables
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    connection, peer = server.accept()
    def check():
        for _ in range(1000):
            assert shared_tables().peer_owner(connection.getsockname(), peer) == os.geteuid()
    check()
    child = os.fork()
    check()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@needs_owners
def test_a_forked_child_has_its_own_descriptor() -> None:
    """A child and its parent, which use the same tables at the same time, receive their own answers only."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", IN_A_FORKED_CHILD], check=True, timeout=DEADLINE)


def test_the_exact_listener_counts() -> None:
    """The kernel gives a connection to the listener on 127.0.0.1, if there is one, before one on all addresses."""
    anywhere = row("00000000:162E", "00000000:0000", "0A", 1001, 8)
    exact = row(f"{LOOPBACK}:162E", "00000000:0000", "0A", 1000, 7)
    every = row(f"{'0' * 32}:162E", f"{'0' * 32}:0000", "0A", 1002, 9)
    assert {1000} == listener_owners(parse_table(HEADER + anywhere + exact + every, 5678), 5678)
    assert {1001, 1002} == listener_owners(parse_table(HEADER + anywhere + every, 5678), 5678)


def test_mapped_addresses_are_shown_as_ipv4() -> None:
    """An IPv4-mapped address in the IPv6 table equals the IPv4 address."""
    (parsed,) = parse_table(HEADER + row(f"{MAPPED}{LOOPBACK}:162E", f"{'0' * 32}:0000", "0A", 1000, 7), 5678)
    assert (("127.0.0.1", 5678), True, 1000) == (parsed.local, parsed.is_listening, parsed.owner)


@pytest.mark.parametrize("bad", ["   0: 0100007F:162E 0\n", row("x:162E", "y:2", "01", 1, 1)])
def test_another_form_of_table_is_an_error(bad: str) -> None:
    """A table of an unknown form shows nothing about owners."""
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        list(parse_table(HEADER + bad, 5678))


def test_tables_on_a_system_without_pread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a socket counts as unknown, as on a system without tables."""
    (tmp_path / "tcp").write_text(HEADER)
    monkeypatch.delattr("os.pread")
    with SocketTables(tmp_path) as tables, pytest.raises(OwnersNotShown):
        tables.listener_owners(5678)
