"""Facts about the start of debugpy's adapter, and its report about its ports."""

import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from relay_agent.debuggee.adapter_start import FILE_VARIABLE, own_adapter
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

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


@pytest.mark.parametrize("disk", ["size=4k", "ro"])
def test_no_room_for_temporary_files(tmp_path, disk):
    """The debugger starts although the directory for temporary files is full or read-only."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace")
    code = "from relay_agent.debuggee.debugger import debugger; print(debugger.arm() > 0, flush=True)"
    mount = f'mount -t tmpfs -o {disk} none /tmp && (head -c 9999 /dev/zero >/tmp/full; true) 2>/dev/null && exec "$@"'
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert "True\n" == result.stdout, result.stderr


REPLACED = """
    import os, subprocess
    from unittest import mock
    from relay_agent.debuggee.debugger import debugger
    original = subprocess.Popen
    subprocess.Popen = {replacement}
    replacement = subprocess.Popen
    print(debugger.arm(), flush=True)
    try:
        print(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        print("no child", subprocess.Popen is replacement, flush=True)
"""


@pytest.mark.parametrize("replacement", ["lambda *args, **options: original(*args, **options)", "mock.MagicMock()"])
async def test_a_job_that_has_replaced_the_class(replacement: str) -> None:
    """With a function or a mock in place of `Popen`, debugpy starts all the same, and not as a child of the job."""
    async with job(REPLACED.replace("{replacement}", replacement)) as running:
        assert await running.line() != ""
        assert "no child True" == await running.line()
        assert (0, [], "") == await running.finish()
