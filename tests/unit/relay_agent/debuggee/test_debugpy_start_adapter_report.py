"""Facts about the report of debugpy's adapter about its ports."""

import socket
import stat
import threading
from pathlib import Path

import pytest

from relay_agent.debuggee.debugpy_start import report_through_file
from tests.support.deadline import DEADLINE


def test_only_the_file_is_a_report() -> None:
    """What connects to the port is ignored; the report is the content of the file, when that is complete."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        report_through_file() as path,
        socket.create_connection(server.getsockname()) as stranger,
    ):
        stranger.sendall(b"a lie")
        Path(path).write_text('{"client"')
        adapter = threading.Timer(0.1, lambda: Path(path).write_text("{}\n"))
        adapter.start()
        connection, _ = server.accept()
        with connection, connection.makefile("rb", 0) as report:
            assert b"{}\n" == report.read()
        adapter.join()


def test_no_report_in_time() -> None:
    """The time limit of the listener holds."""
    with socket.create_server(("127.0.0.1", 0)) as server, report_through_file():
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


def test_other_users_cannot_write_the_file() -> None:
    """The file is in a directory of this user alone, which is gone after the block."""
    with report_through_file() as path:
        directory = Path(path).parent
        assert 0o700 == stat.S_IMODE(directory.stat().st_mode)
    assert not directory.exists()


def test_other_threads_and_times_are_not_affected() -> None:
    """While debugpy starts in one thread, a server in another accepts connections; later `accept` is as before."""
    before = socket.socket.accept
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as connection:
                accepted.append(connection.recv(100))

        with report_through_file():
            serving = threading.Thread(target=serve)
            serving.start()
            with socket.create_connection(server.getsockname()) as client:
                client.sendall(b"request")
            serving.join(DEADLINE)
    assert [b"request"] == accepted
    assert before is socket.socket.accept
