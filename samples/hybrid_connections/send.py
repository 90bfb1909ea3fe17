"""Sends a text to one of the two servers, and prints the answer: `send.py ws hello`, or `send.py http hello`."""

import asyncio
import os
import sys

from aiohttp import ClientSession

from relay_core.auth import credential_from_connection_string
from relay_core.hyco import ConnectionString
from relay_core.net import connect, http_headers
from relay_core.net.relay_tls import client_tls


async def main(kind: str, text: str) -> None:
    """Send the text as a WebSocket message to the echo server, or as an HTTP request to the web application."""
    address = ConnectionString.parse(os.environ["RELAY_SEND"])
    endpoint, credential = address.endpoint(), credential_from_connection_string(address)
    if kind == "ws":
        websocket = await connect(endpoint, credential)
        await websocket.send(text)
        print(await websocket.receive())
        await websocket.close()
        return
    headers = await http_headers(endpoint, credential)
    async with (
        ClientSession() as session,
        session.post(endpoint.http_url("/greeting"), data=text, headers=headers, ssl=client_tls()) as answer,
    ):
        print(answer.status, await answer.text())


asyncio.run(main(*sys.argv[1:3]))
