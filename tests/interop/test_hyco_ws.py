"""Facts about Microsoft's hyco-ws against our listener, our sender and our relay."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_core.net import HybridConnectionListener, WebSocket, connect
from relay_core.net.tasks import TaskSet
from tests.support import secrets
from tests.support.relay import HC, LocalRelay

FOLDER = Path(__file__).parent
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules/hyco-ws").is_dir(), reason="hyco-ws is not installed: run make test"
    ),
]


@contextlib.asynccontextmanager
async def node(script: str, relay: LocalRelay, rule: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a script of this folder with the relay's address and a rule's key in its environment."""
    key = {"listen": relay.listen_key, "send": relay.send_key}[rule]
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(FOLDER / script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "NODE_EXTRA_CA_CERTS": str(relay.ca_file),
            "RELAY_HOST": "localhost",
            "RELAY_PORT": str(relay.server.port),
            "RELAY_HC": HC,
            "RELAY_KEY_NAME": rule,
            "RELAY_KEY": key,
        },
    )
    try:
        yield process
    finally:
        process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def event(process: asyncio.subprocess.Process) -> dict[str, object]:
    """Return the next JSON line that the script prints."""
    line = await asyncio.wait_for(process.stdout.readline(), 20)
    secrets.check(line.decode())
    return json.loads(line)


async def echo_one(listener: HybridConnectionListener) -> tuple[int, str]:
    """Accept one sender, echo its messages, and return its close code and reason."""

    async def serve(websocket: WebSocket) -> tuple[int, str]:
        from relay_core.errors import ConnectionLost

        try:
            while True:
                await websocket.send(await websocket.receive())
        except ConnectionLost as lost:
            return lost.code, lost.reason

    async for offer in listener:
        return await serve(await offer.accept())
    raise AssertionError("the listener ended")


async def test_a_hyco_ws_sender_reaches_our_listener(relay: LocalRelay) -> None:
    """hyco-ws sends text and 300,000 bytes, gets both back, and its close code and reason arrive."""
    async with HybridConnectionListener(relay.endpoint, relay.listener, tls=relay.tls) as listener, TaskSet() as tasks:
        echoing = tasks.spawn(echo_one(listener), name="echo")
        while not relay.server.metrics().active_listeners:
            await asyncio.sleep(0.01)
        async with node("hyco_sender.js", relay, "send") as sender:
            result = await event(sender)
            assert {"text": True, "binary": True, "code": 1000, "reason": "bye"} == result
            assert (1000, "bye") == await echoing
            assert await sender.wait() == 0


async def test_our_sender_reaches_a_hyco_ws_listener(relay: LocalRelay) -> None:
    """A hyco-ws listener echoes what our sender sends, agrees on its first subprotocol, and sees it close."""
    async with node("hyco_listener.js", relay, "listen") as listener:
        assert await event(listener) == {"event": "listening"}
        websocket = await connect(relay.endpoint, relay.sender, tls=relay.tls, subprotocols=["sub1", "sub2"])
        assert await event(listener) == {"event": "accepted", "protocol": "sub1"}
        assert websocket.subprotocol == "sub1"
        for message in ("grüße", os.urandom(300_000)):
            await websocket.send(message)
            assert message == await websocket.receive()
        await websocket.close(1000, "done")
        assert await event(listener) == {"event": "closed", "code": 1000, "reason": "done"}


async def test_a_hyco_ws_sender_sees_that_nobody_listens(relay: LocalRelay) -> None:
    """hyco-ws gets the relay's 404 with its reason phrase."""
    async with node("hyco_sender.js", relay, "send") as sender:
        result = await event(sender)
    assert result["status"] == 404
    assert result["reason"].startswith("There are no listeners connected for the endpoint.")
