"""Facts about who can use the TensorBoard that relay-client starts."""

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.tensorboard.checked import LISTENING
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.mlflow import PYTHON, ROOT
from tests.support.machine.other_user import connecting_stranger, needs_owners, needs_second_user
from tests.support.machine.ports import free_port

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("mlflow"),
    pytest.mark.skipif(
        not (HAS_TENSORBOARD or (ROOT / ".mlflow" / ".ready").exists()),
        reason="tensorboard is not installed: make extras",
    ),
]


@contextlib.asynccontextmanager
async def tensorboard(directory: Path) -> AsyncIterator[int]:
    """Run TensorBoard as relay-client does; yield its port."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable if HAS_TENSORBOARD else str(PYTHON), "-m", "relay_client.tensorboard.checked"),
        *("--logdir", str(directory), "--port", str(port)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert LISTENING == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        yield port
    finally:
        process.terminate()
        await process.communicate()


def request(host: str) -> str:
    return f"GET /data/environment HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


async def status(port: int, host: str) -> str:
    """Return the status of the answer to this user's request under a host name."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request(host).encode())
        return (await asyncio.wait_for(reader.read(), DEADLINE)).decode().split()[1]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_foreign_host(tmp_path: Path) -> None:
    """The user's browser gets the page, and a web page under a name of its own does not."""
    async with tensorboard(tmp_path) as port:
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}", f"evil.example:{port}")
        assert ["200", "200", "403"] == [await status(port, host) for host in hosts]


@needs_owners
@needs_second_user
async def test_another_user_of_tensorboard(tmp_path: Path) -> None:
    """A connection of another user of the machine is closed without an answer, and this user's are served."""
    async with tensorboard(tmp_path) as port:
        assert "" == await connecting_stranger(port, request("localhost"))
        assert "200" == await status(port, "localhost")
