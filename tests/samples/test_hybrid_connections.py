"""Facts about samples/hybrid_connections: the programs work behind a real relay."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from relay_core.compat import timeout
from relay_core.net import connect, http_headers
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import environment
from tests.support.network.relay import LocalRelay

SAMPLE = Path(__file__).parents[2] / "samples/hybrid_connections"


@contextlib.asynccontextmanager
async def running(script: str, relay: LocalRelay) -> AsyncIterator[None]:
    """Run a sample as its README describes; the block begins when it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SAMPLE / script),
        stdout=asyncio.subprocess.PIPE,
        env=environment(RELAY_LISTEN=relay.connection_string("listen"), RELAY_CA_FILE=str(relay.ca_file)),
    )
    try:
        assert b"listening\n" == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        async with timeout(DEADLINE):
            while not relay.server.metrics().active_listeners:
                await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        secrets.check((await process.communicate())[0].decode())


@pytest.mark.e2e
async def test_echo_server(relay: LocalRelay) -> None:
    """Two senders at once get their messages back."""
    async with running("echo_server.py", relay):
        senders = [await connect(relay.endpoint, relay.sender, tls=relay.tls) for _ in range(2)]
        for sender in senders:
            for message in ("grüße", os.urandom(100_000)):
                await sender.send(message)
                assert message == await asyncio.wait_for(sender.receive(), DEADLINE)
        await asyncio.gather(*(sender.close() for sender in senders))


@pytest.mark.e2e
@pytest.mark.parametrize("size", [5, 200_000])
async def test_web_app(relay: LocalRelay, size: int) -> None:
    """The aiohttp application answers small and large requests with what it received."""
    headers = await http_headers(relay.endpoint, relay.sender)
    async with (
        running("web_app.py", relay),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE)) as session,
        session.post(relay.endpoint.http_url("/a/b%20c"), data="x" * size, headers=headers, ssl=relay.tls) as answer,
    ):
        assert 200 == answer.status
        assert {"path": "/myhc/a/b c", "via": "1.1 localhost", "body": "x" * size} == await answer.json()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("server", "kind", "shown"), [("echo_server.py", "ws", "hello"), ("web_app.py", "http", "200 ")]
)
async def test_sender(relay: LocalRelay, server: str, kind: str, shown: str) -> None:
    """The sender prints what each server answers."""
    async with running(server, relay):
        sender = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SAMPLE / "send.py"), kind, "hello"),
            stdout=asyncio.subprocess.PIPE,
            env=environment(RELAY_SEND=relay.connection_string("send"), RELAY_CA_FILE=str(relay.ca_file)),
        )
        output, _ = await asyncio.wait_for(sender.communicate(), DEADLINE)
        assert 0 == sender.returncode
        assert output.decode().startswith(shown)
        assert "hello" in output.decode()
