"""Facts about registered processes, how they ended, and the digests of source files."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_agent.node.in_agent.processes import MAX_ENDINGS, MAX_SOURCE, ProcessTable, file_digest
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.agent_api.fitting import fit
from relay_core.agent_api.requests import FileDigest
from relay_core.errors import RelayDebugError


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """The agent's end of a connection to a process, and the process's end."""
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    try:
        yield writer, far
    finally:
        writer.close()
        await writer.wait_closed()
        far.close()


@pytest.mark.parametrize("port", [0, -1, "x", 65536, True, None])
async def test_an_invalid_port_is_refused(port: Any) -> None:
    """Such a port could not be announced; the process gets one sentence, and the table stays empty."""
    table, record = ProcessTable(), {"port": port, "pid": 1}
    async with connection() as (writer, far):
        assert not table.admit(RegisteredProcess(writer, 1, record), {"register": record})  # type: ignore[arg-type,typeddict-item]
        assert {
            "refused": f"invalid port: {port!r}",
            "hint": "use a --debug-port from 1 to 65535",
        } == json.loads(far.recv(4096))
    assert (0, False) == (len(table), table.any.is_set())


async def test_the_ending_that_an_editor_needs_is_announced() -> None:
    """If a thousand processes end at once, the ending of the one with a debugger is in the next announcement."""
    table = ProcessTable()
    async with connection() as (writer, _):
        for number in range(1000):
            process = RegisteredProcess(writer, number, {"port": 10_000 + number})
            process.was_debugged = number == 3
            table.ended(process, 9)
    described = table.describe(AgentInfo(AgentId("1a2b")))
    assert described.endings is not None
    assert MAX_ENDINGS == len(described.endings)
    announced = AgentInfo.parse(fit(described.encode(), 2000)).endings
    assert announced is not None
    assert [10_993, 10_994, 10_995, 10_996, 10_997, 10_998, 10_999, 10_003] == [each.port for each in announced]


async def test_a_debugger_makes_an_ending_important(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was asked to start debugpy, or to connect to an editor, counts as debugged."""
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.ARM_TIMEOUT", 0.0)
    for attach in (RegisteredProcess.locate, lambda process: process.connect_to(1)):
        async with connection() as (writer, _):
            process = RegisteredProcess(writer, 1, {"port": 5678})
            assert not process.was_debugged
            with pytest.raises(RelayDebugError):
                await attach(process)
            assert process.was_debugged


def test_digest_of_a_source_file(tmp_path: Path) -> None:
    """A file with Windows line endings has the same digest as one with Unix line endings."""
    windows, unix = tmp_path / "windows.py", tmp_path / "unix.py"
    windows.write_bytes(b"a = 1\r\nb = 2\r\n")
    unix.write_bytes(b"a = 1\nb = 2\n")
    assert file_digest(windows) == file_digest(unix) != FileDigest()


@pytest.mark.parametrize("name", ["absent.py", ".", "large.py", "zero\0byte.py"])
def test_files_without_a_digest(tmp_path: Path, name: str) -> None:
    """A missing file, a directory, a file above the limit, and a path that no file can have are not read."""
    (tmp_path / "large.py").write_bytes(bytes(MAX_SOURCE + 1))
    assert FileDigest() == file_digest(tmp_path / name)
