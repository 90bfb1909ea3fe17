"""An echo server behind a hybrid connection; it sends every WebSocket message back to its sender."""

import asyncio
import os

from relay_core.auth import credential_from_connection_string
from relay_core.errors import ConnectionLost
from relay_core.hyco import ConnectionString
from relay_core.net import HybridConnectionListener, Offer
from relay_core.net.tasks import TaskSet


async def echo(offer: Offer) -> None:
    """Send each message from one sender back to that sender."""
    websocket = await offer.accept()
    try:
        while True:
            await websocket.send(await websocket.receive())
    except ConnectionLost:
        print("a sender has disconnected", flush=True)


async def main() -> None:
    """Listen, and serve every sender in a separate task."""
    address = ConnectionString.parse(os.environ["RELAY_LISTEN"])
    credential = credential_from_connection_string(address)
    async with HybridConnectionListener(address.endpoint(), credential) as listener, TaskSet() as tasks:
        print("listening", flush=True)
        async for offer in listener:
            tasks.spawn(echo(offer), name=offer.id)


asyncio.run(main())
