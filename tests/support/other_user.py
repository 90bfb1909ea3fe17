"""A program of another user of this machine, as a real process with another uid."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

import pytest

from tests.support.deadline import DEADLINE

__all__ = ["OTHER_UID", "connecting_stranger", "listening_stranger", "lying_stranger", "needs_second_user"]

OTHER_UID = 65534
"""`nobody`; it owns nothing and may do nothing."""

needs_second_user = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can start a program as another user"
)

_BECOME_OTHER = f"""
import json, os, pathlib, socket, sys
"".encode("idna")  # loads what socket needs: this user may not be able to read the interpreter's files
os.setgroups([])
os.setgid({OTHER_UID})
os.setuid({OTHER_UID})
host, port = sys.argv[1], int(sys.argv[2])
"""
_CONNECT = f"""
with socket.create_connection((host, port), timeout={DEADLINE / 2}) as connection:
    received = b""
    try:
        connection.sendall(sys.argv[3].encode())
        while data := connection.recv(1000):
            received += data
    except ConnectionError:
        pass
    except TimeoutError:
        received += b" (not closed)"
print(received.decode())
"""
_LISTEN = """
with socket.create_server((host, port)) as server:
    print("listening", flush=True)
    while True:
        connection, _ = server.accept()
        print("accepted", connection.recv(1000).decode(), flush=True)
"""
_LIE = """
def endpoints_port(parent):
    # Of debugpy's adapter, as its command line shows it to everybody.
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                words = (process / "cmdline").read_bytes().split(b"\\0")
                if b"--for-server" in words:
                    return int(words[words.index(b"--for-server") + 1])
        except OSError:
            pass

print("looking", flush=True)
while (found := endpoints_port(port)) is None:
    pass
with socket.create_connection((host, found)) as connection:
    false = {"host": "127.0.0.1", "port": 9}
    connection.sendall(json.dumps({"client": false, "server": false}).encode())
print("reported", flush=True)
"""


async def connecting_stranger(port: int, request: str, *, host: str = "127.0.0.1") -> str:
    """Connect to a port as another user, send a request, and return all that comes back until the connection ends."""
    async with _stranger(_CONNECT, host, str(port), request) as process:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert 0 == process.returncode
        return output.decode().strip()


@contextlib.asynccontextmanager
async def lying_stranger(job: int) -> AsyncIterator[asyncio.StreamReader]:
    """As another user, report a false address of debugpy's adapter to a job; what is yielded then has `reported`.

    Args:
        job: Process id of the job, which starts debugpy within the block.
    """
    async with _stranger(_LIE, "127.0.0.1", str(job)) as process:
        assert process.stdout is not None
        assert b"looking\n" == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        yield process.stdout


@contextlib.asynccontextmanager
async def listening_stranger(port: int) -> AsyncIterator[asyncio.StreamReader]:
    """Listen on a port as another user; what is yielded has a line `accepted BYTES` for each connection."""
    async with _stranger(_LISTEN, "127.0.0.1", str(port)) as process:
        assert process.stdout is not None
        assert b"listening\n" == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        yield process.stdout


@contextlib.asynccontextmanager
async def _stranger(script: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _BECOME_OTHER + script, *arguments), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
