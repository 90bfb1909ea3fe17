"""Facts about Microsoft's hyco-ws against our listener, our sender and our relay."""

import asyncio
import os

from relay_core.net import HybridConnectionListener, WebSocket, connect
from relay_core.net.tasks import TaskSet
from tests.interop.kit import event, needs, node
from tests.support.network.relay import LocalRelay

pytestmark = needs("hyco-ws")


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
    # language: keep - Azure's text
    assert result["reason"].startswith("There are no listeners connected for the endpoint.")
