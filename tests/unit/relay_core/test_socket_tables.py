"""Facts about the owner of a TCP socket of this machine."""

import socket
import sys
from pathlib import Path

import pytest

from relay_core.socket_tables import OwnerUnknown, SocketTables, own_user, parse_table
from tests.support.other_user import OTHER_UID, listening_stranger, needs_second_user
from tests.support.ports import free_port

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOOPBACK = "0100007F" if sys.byteorder == "little" else "7F000001"
MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"

needs_tables = pytest.mark.skipif(not SocketTables().is_readable, reason="this system does not show who owns a socket")


def row(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    """Return a line as the kernel writes it."""
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0 20 4\n"


def tables(directory: Path, *, tcp: str = "", tcp6: str | None = None) -> SocketTables:
    """Return tables with these rows."""
    (directory / "tcp").write_text(HEADER + tcp)
    if tcp6 is not None:
        (directory / "tcp6").write_text(HEADER + tcp6)
    return SocketTables(directory)


@needs_tables
def test_a_listener_of_this_process() -> None:
    """A listener belongs to the user of the process that opened it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert {own_user()} == SocketTables().listener_owners(server.getsockname()[1])


@needs_tables
@needs_second_user
async def test_a_listener_of_another_user() -> None:
    """A listener of another user is shown with that user's uid."""
    port = free_port()
    async with listening_stranger(port):
        assert {OTHER_UID} == SocketTables().listener_owners(port)


@needs_tables
def test_a_port_without_listener_has_no_known_owner() -> None:
    """A port that is bound without listening has no owner."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(OwnerUnknown):
            SocketTables().listener_owners(bound.getsockname()[1])


@needs_tables
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
            assert own_user() == SocketTables().peer_owner(connection.getsockname(), peer)
            assert own_user() == SocketTables().peer_owner(client.getsockname()[:2], client.getpeername()[:2])


@needs_tables
def test_connections_of_a_port() -> None:
    """A port has a connection from its being accepted until its program has closed it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not SocketTables().has_connection(port)
        with socket.create_connection(server.getsockname()):
            connection, _ = server.accept()
            with connection:
                assert SocketTables().has_connection(port)
            assert not SocketTables().has_connection(port)


@needs_tables
def test_connected_programs() -> None:
    """A port has a client until that has closed its connection, whether the server has closed it or not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not SocketTables().has_client(port)
        with socket.create_connection(server.getsockname()):
            assert SocketTables().has_client(port)
            connection, _ = server.accept()
        with connection:
            assert not SocketTables().has_client(port)


@pytest.fixture(params=["looked up", "in the table"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """How a connection is found: each way is the only one."""
    if request.param == "in the table":
        monkeypatch.delattr(socket, "AF_NETLINK")
    else:
        monkeypatch.setattr("relay_core.socket_tables.PROC_NET", tmp_path)
    return str(request.param)


@needs_tables
@pytest.mark.usefixtures("way")
def test_a_connection_is_found_in_either_way() -> None:
    """The owner is known if either the kernel answers queries or its tables can be read."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        tables = SocketTables()
        assert tables.peer_owner(client.getsockname(), client.getpeername()) is None
        connection, peer = server.accept()
        with connection:
            assert own_user() == tables.peer_owner(client.getsockname(), client.getpeername())
            assert own_user() == tables.peer_owner(connection.getsockname(), peer)
            client.close()
            assert tables.peer_owner(connection.getsockname(), peer) is None


@needs_tables
def test_a_connection_that_is_not_accepted_belongs_to_nobody() -> None:
    """A connection in a listener's queue has no owner: the kernel shows it with the uid 0 or the listener's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        assert SocketTables().peer_owner(client.getsockname(), client.getpeername()) is None


@needs_tables
def test_a_peer_that_has_closed_its_socket_belongs_to_nobody() -> None:
    """What a program has sent before it closed its socket cannot be attributed to a user."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"evaluate")
        connection, peer = server.accept()
        with connection:
            assert SocketTables().peer_owner(connection.getsockname(), peer) is None


def test_a_system_without_tables_cannot_tell(tmp_path: Path) -> None:
    """Without the kernel's tables, and with tables of another network namespace, owners are unknown."""
    assert not SocketTables(tmp_path).is_readable
    for shown in (SocketTables(tmp_path), tables(tmp_path)):
        with pytest.raises(OwnerUnknown):
            shown.listener_owners(5678)
        with pytest.raises(OwnerUnknown):
            shown.peer_owner(("127.0.0.1", 5678), ("127.0.0.1", 40000))


def test_a_peer_in_another_namespace_is_nobody(tmp_path: Path) -> None:
    """If only our own end is listed, the other end belongs to no user of this machine."""
    own_end = row(f"{LOOPBACK}:162E", f"{LOOPBACK}:9C40", "01", 1000, 7)
    assert tables(tmp_path, tcp=own_end).peer_owner(("127.0.0.1", 5678), ("127.0.0.1", 40000)) is None


def test_the_exact_listener_counts(tmp_path: Path) -> None:
    """The kernel gives a connection to the listener on 127.0.0.1, if there is one, before one on all addresses."""
    anywhere = row("00000000:162E", "00000000:0000", "0A", 1001, 8)
    exact = row(f"{LOOPBACK}:162E", "00000000:0000", "0A", 1000, 7)
    every = row(f"{'0' * 32}:162E", f"{'0' * 32}:0000", "0A", 1002, 9)
    assert {1000} == tables(tmp_path, tcp=anywhere + exact, tcp6=every).listener_owners(5678)
    assert {1001, 1002} == tables(tmp_path, tcp=anywhere, tcp6=every).listener_owners(5678)


def test_mapped_addresses_are_shown_as_ipv4() -> None:
    """An IPv4-mapped address in the IPv6 table equals the IPv4 address."""
    (parsed,) = parse_table(HEADER + row(f"{MAPPED}{LOOPBACK}:162E", f"{'0' * 32}:0000", "0A", 1000, 7), 5678)
    assert (("127.0.0.1", 5678), True, 1000) == (parsed.local, parsed.is_listening, parsed.owner)


@pytest.mark.parametrize(
    "bad", ["   0: 0100007F:162E 0\n", row("01:162E", "01:0001", "01", 1, 1), row("x:162E", "y:2", "01", 1, 1)]
)
def test_another_form_of_table_is_an_error(tmp_path: Path, bad: str) -> None:
    """A table of an unknown form says nothing about owners."""
    with pytest.raises(OwnerUnknown):
        tables(tmp_path, tcp=bad).listener_owners(5678)
