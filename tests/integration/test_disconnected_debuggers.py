"""What the agent logs when a client's debugger has disconnected, with real sockets."""

import asyncio
import logging
import socket
import struct

import pytest

from relay_client.control.service import RELEASED
from relay_client.ports.forwarder import Forwarder
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import DAP_START, node_of, tunnels, until_announced
from tests.support.network.relay import LocalRelay

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 seconds: `close` resets the connection."""


@pytest.mark.parametrize(
    ("end", "line"),
    [
        ("release", "the peer closed the connection: the rank was released on request"),
        ("stop", "the peer closed the connection: this client was stopped"),
        ("reset", "connection lost: the peer closed the connection: the local connection failed: "),
    ],
)
async def test_only_a_failed_connection_is_lost(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, end: str, line: str
) -> None:
    """If the client ends the connection on purpose, the agent logs the reason without the word."""
    caplog.set_level(logging.INFO)
    port = free_port()
    async with (
        node_of(relay, port, name="rank", dap_only=True),
        tunnels(relay) as client,
        Forwarder(client, [port]) as forwarder,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        await asyncio.wait_for(reader.read(1), DEADLINE)
        await until_announced(client, is_attached=True)  # changes that follow each other are announced together
        if end == "release":
            await forwarder.disconnect(port, RELEASED)
        elif end == "stop":
            await forwarder.close()
        else:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        await until_announced(client, is_attached=False)
        writer.close()
    (found,) = (message for message in caplog.messages if "the peer closed the connection" in message)
    assert f">: {line}" in found
