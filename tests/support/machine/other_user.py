"""A program of another user of this machine, as a real process with another uid."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_core import socket_tables
from tests.support.machine.deadline import DEADLINE

__all__ = [
    "OTHER_UID",
    "connecting_stranger",
    "crowd_of_strangers",
    "hide_owners",
    "listening_stranger",
    "lying_stranger",
    "needs_owners",
    "needs_queries",
    "needs_second_user",
    "use_tables",
]

OTHER_UID = 65534
"""`nobody`; it owns nothing and may do nothing."""


def _answers_queries() -> bool:
    """Return whether this system offers sock_diag(7)."""
    queries = socket_tables.SocketQueries()
    try:
        queries.find_connection(("127.0.0.1", 1), ("127.0.0.1", 1))
    except OSError:
        return False
    finally:
        queries.close()
    return True


needs_owners = pytest.mark.skipif(
    not socket_tables.shared_tables().shows_owners, reason="this system does not show who owns a socket"
)
needs_queries = pytest.mark.skipif(not _answers_queries(), reason="this system does not offer sock_diag")
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
received = b""
try:
    with socket.create_connection((host, port), timeout={DEADLINE / 2}) as connection:
        connection.sendall(sys.argv[3].encode())
        while data := connection.recv(1000):
            received += data
except (BrokenPipeError, ConnectionResetError):  # perhaps before `connect` returns
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
_CROWD = """
import select, time

def opened(port, count):
    # Connections that may be waiting to be accepted.
    found = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, port))
        found.append(connection)
    return found

def received(connections, request, seconds):
    # What comes back on any of them until it is reset, or the time is over.
    data, open_ones, deadline = b"", set(connections), time.monotonic() + seconds
    for connection in connections:
        try:
            connection.sendall(request)
        except OSError:
            pass
    while open_ones and (left := deadline - time.monotonic()) > 0:
        for connection in select.select(list(open_ones), [], [], left)[0]:
            try:
                piece = connection.recv(1000)
            except OSError:
                piece = b""
            data += piece
            if not piece:
                open_ones.discard(connection)
    for connection in connections:
        connection.close()
    return data

def accepted(connections):
    # Those of the connections that the program has accepted; the others are closed, so that they take no descriptor.
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    owned = {int(row[2].partition(":")[2], 16) for row in rows if row[9] != "0"}
    found = [connection for connection in connections if connection.getsockname()[1] in owned]
    for connection in set(connections) - set(found):
        connection.close()
    return found

request, idle_port, answers = sys.argv[3].encode(), int(sys.argv[4]), b""
idle = opened(idle_port, 80) if idle_port else []
time.sleep(1)
idle = accepted(idle)
for _ in range(6):
    if idle:
        idle.pop().close()
    answers += received(opened(port, 1 if idle else 80), request, 1.2)
print(answers.decode())
"""
# language: keep - source of a program
_LIE = """
def endpoints_ports():
    # Of debugpy's adapters with this interpreter, as their command lines show them to everybody.
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\\0")
            if b"--for-server" in words and words[0] == sys.argv[3].encode():
                yield int(words[words.index(b"--for-server") + 1])
        except OSError:
            pass

before = {*endpoints_ports()}
print("looking", flush=True)
while not (found := {*endpoints_ports()} - before):
    pass
for number in found:
    try:
        with socket.create_connection((host, number)) as connection:
            false = {"host": "127.0.0.1", "port": 9}
            connection.sendall(json.dumps({"client": false, "server": false}).encode())
    except ConnectionError:  # it has received its report already
        pass
print("reported", flush=True)
"""


def hide_owners(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    """Make this system one that does not show who owns a socket: it has neither tables nor queries."""
    monkeypatch.setattr(socket_tables, "PROC_NET", empty)
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    use_tables(monkeypatch, socket_tables.SocketTables())


def use_tables(monkeypatch: pytest.MonkeyPatch, tables: socket_tables.SocketTables) -> None:
    """Replace the tables of this program, for which something else may already be decided."""
    for name, module in list(sys.modules.items()):
        if name.startswith("relay_") and hasattr(module, "shared_tables"):
            monkeypatch.setattr(module, "shared_tables", lambda: tables)


async def connecting_stranger(port: int, request: str, *, host: str = "127.0.0.1") -> str:
    """Connect to a port as another user, send a request, and return all that comes back until the connection ends."""
    async with _stranger(_CONNECT, host, str(port), request) as process:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert 0 == process.returncode
        return output.decode().strip()


async def crowd_of_strangers(port: int, request: str, *, idle_port: int = 0) -> str:
    """As another user, try to use up the descriptors of a program, and return what it has answered to requests.

    Args:
        port: The port to which the requests are sent, on many connections at once.
        request: The request, sent on each connection.
        idle_port: Another port of the program, on which the connections stay idle instead; 0 for none.
    """
    async with _stranger(_CROWD, "127.0.0.1", str(port), request, str(idle_port)) as process:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert 0 == process.returncode
        return output.decode().strip()


@contextlib.asynccontextmanager
async def lying_stranger(python: Path) -> AsyncIterator[asyncio.StreamReader]:
    """As another user, report a false address of debugpy's adapter to the job that starts one within the block.

    What is yielded then has `reported`.

    Args:
        python: The interpreter that executes this adapter, and no other one: other tests are running.
    """
    async with _stranger(_LIE, "127.0.0.1", "0", str(python)) as process:
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
