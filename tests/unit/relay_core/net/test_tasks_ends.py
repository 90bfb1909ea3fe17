"""Facts about closing connections and ending child processes."""

import asyncio
import signal
import socket
import struct
import sys
import uuid

import psutil
import pytest

from relay_core.compat import TIMEOUT_ERRORS
from relay_core.net.tasks import close_writer, end_process, output_of

WAITING = "import signal; print('ready', flush=True); signal.pause()"
IGNORING = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITING}"


async def test_a_connection_that_was_reset_is_closed() -> None:
    """The reset by the peer is not an error of whoever closes the connection."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        peer = await accepted.get()
        peer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.transport.abort()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await close_writer(writer)
    assert writer.is_closing()


@pytest.mark.parametrize(("code", "number"), [(WAITING, signal.SIGTERM), (IGNORING, 9)])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
async def test_how_a_process_is_ended(code: str, number: int) -> None:
    """A process is terminated, and killed if it does not exit in time."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    await end_process(process, within=0.5 if number == 9 else 30.0)
    assert process.returncode == -number


async def test_a_process_that_has_exited_is_left_alone() -> None:
    """Its number may belong to another process."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    await end_process(process, within=30.0)
    assert process.returncode == 0


async def test_output_of_a_program() -> None:
    """Exit status and both streams are returned; a program that is not in time is killed before the error."""
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert (3, b"out\n", b"err\n") == await output_of(sys.executable, "-c", code, within=30.0)
    marker = f"--{uuid.uuid4()}"
    with pytest.raises(TIMEOUT_ERRORS):
        await output_of(sys.executable, "-c", WAITING, marker, within=0.1)
    assert not [each for each in psutil.process_iter(["cmdline"]) if marker in (each.info["cmdline"] or [])]
