"""Facts about a stranger who sends key updates to a relay instead of a request."""

import asyncio
import contextlib

from relay_core.net.relay_tls import client_tls
from relay_core.net.tls import MAX_BARREN
from tests.support.key_updates import KEY_UPDATE_SIZE, dial_records
from tests.support.raw_websocket import TEXT

BURST = 64
LIMIT = 32 * MAX_BARREN
"""Bytes; more than the kernel accepts while the relay is dropping a connection."""


def flood(target, key_log):
    """Send key updates until the relay drops the connection; return their bytes, or `LIMIT` if it does not."""
    connection, records = dial_records(target.port, client_tls(str(target.ca_file)), key_log)
    sent = 0
    with connection, contextlib.suppress(ConnectionError):
        while sent < LIMIT:
            connection.sendall(records.key_updates(BURST))
            sent += BURST * KEY_UPDATE_SIZE
    return sent


async def test_strangers_who_send_key_updates(start_relay, monkeypatch, tmp_path):
    """A stranger who sends key updates is dropped after some kilobytes, and other connections continue."""
    monkeypatch.setattr("relay_server.gateway.HEAD_TIMEOUT", 3600)
    relay = await start_relay()
    sender, listener = await relay.pair()
    floods = (asyncio.to_thread(flood, relay.target, tmp_path / f"keys-{number}") for number in range(4))
    sent = await asyncio.gather(*floods)
    assert max(sent) < LIMIT
    await sender.send(TEXT, b"through")
    assert (TEXT, b"through") == await listener.read_message()
