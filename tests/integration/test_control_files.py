"""Facts about the files in which relay-clients leave the addresses of their control sockets."""

import asyncio
import json
from pathlib import Path

import pytest

from relay_client.control.client import ControlClient, running_clients
from relay_client.control.directory import Address, ControlDirectory


async def test_files_of_killed_programs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at a stale address; if another program took the port, it learns and answers nothing."""
    directory = ControlDirectory(tmp_path / "own")
    directory.listen("1a2b3c4d")[0].close()
    with monkeypatch.context() as elsewhere:
        elsewhere.delattr("socket.AF_UNIX")
        listener, address = directory.listen("5e6f7a8b")
    listener.close()
    received: list[bytes] = []

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"challenge": "c", "version": 1}\n')
        received.append(await reader.readline())
        writer.write(json.dumps({"hello": {}, "proof": "0" * 64}).encode() + b"\n")
        writer.close()

    assert address.port is not None
    assert address.token is not None
    server = await asyncio.start_server(impostor, "127.0.0.1", address.port)
    async with server, running_clients(directory) as clients:
        assert [] == clients
    assert address.token.encode() not in received[0]
    assert not (tmp_path / "own").exists()


async def test_a_unix_socket_on_a_system_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An asyncio without Unix sockets, as on Windows, reaches nobody there."""
    monkeypatch.delattr("asyncio.open_unix_connection")
    with pytest.raises(ConnectionRefusedError):
        await ControlClient.connect(Address(tmp_path / "control-1a2b3c4d.sock"))
