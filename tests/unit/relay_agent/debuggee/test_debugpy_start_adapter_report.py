"""Facts about the start of debugpy's adapter, and its report about its ports."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from relay_agent.debuggee.debugpy_start import FILE_VARIABLE, own_adapter
from tests.support.deadline import DEADLINE

REPORTING = (sys.executable, "-c", f"import os; open(os.environ[{FILE_VARIABLE!r}], 'w').write('{{}}\\n')")


def test_only_the_pipe_is_a_report():
    """What connects to the port is ignored; the report is what the started program writes into its pipe."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        own_adapter(),
        socket.create_connection(server.getsockname()) as stranger,
    ):
        stranger.sendall(b"a lie")
        assert 0 == subprocess.Popen(REPORTING, env=dict(os.environ)).wait()
        connection, _ = server.accept()
        with connection, connection.makefile("rb", 0) as report:
            assert b"{}\n" == report.read()


def test_no_report_in_time():
    """The time limit of the listener holds."""
    with socket.create_server(("127.0.0.1", 0)) as server, own_adapter():
        subprocess.Popen((sys.executable, "-c", "import signal; signal.alarm(2); signal.pause()"), env=dict(os.environ))
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


def test_adapter_that_fails():
    """If the program exits without a report, that is known at once."""
    with socket.create_server(("127.0.0.1", 0)) as server, own_adapter():
        subprocess.Popen((sys.executable, "-c", ""), env=dict(os.environ))
        with pytest.raises(RuntimeError, match="failed at its start"):
            server.accept()


def test_other_threads_and_times_are_not_affected():
    """While debugpy starts in one thread, another accepts connections and starts children; later all is as before."""
    before = socket.socket.accept, subprocess.Popen.__init__
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen: list[object] = []

        def serve() -> None:
            with server.accept()[0] as connection:
                seen.append(connection.recv(100))
            seen.append(subprocess.run([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE, check=True).stdout)

        with own_adapter():
            serving = threading.Thread(target=serve)
            serving.start()
            with socket.create_connection(server.getsockname()) as client:
                client.sendall(b"request")
            serving.join(DEADLINE)
    assert [b"request", b"1\n"] == seen
    assert before == (socket.socket.accept, subprocess.Popen.__init__)
