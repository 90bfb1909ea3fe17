"""Facts about peers of a relay that send key updates: a stranger, and a listener with little plaintext."""

import asyncio
import contextlib

from relay_core.net.relay_tls import client_tls
from relay_core.net.tls import MAX_BARREN
from tests.support.network.key_updates import KEY_UPDATE_SIZE, dial_records
from tests.support.network.raw_websocket import TEXT

BURST = 64
TOO_MUCH = 8 * MAX_BARREN
"""Bytes of key updates."""


PING = b"\x89\x80\0\0\0\0"
"""An empty ping of a client."""
LISTEN = """GET /$hc/hc?sb-hc-action=listen&sb-hc-id=flood HTTP/1.1\r
Host: localhost\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r
Sec-WebSocket-Version: 13\r
ServiceBusAuthorization: {token}\r
\r
"""


def flood(target, key_log, request=b"", between=b""):
    """Send `TOO_MUCH`, and wait until the relay drops the connection; raise TimeoutError if it does not.

    Args:
        target: The relay.
        key_log: A file of this connection alone.
        request: What is sent first; its answer is awaited.
        between: Plaintext after each series of key updates.
    """
    connection, records = dial_records(target.port, client_tls(str(target.ca_file)), key_log)
    with connection, contextlib.suppress(ConnectionError):
        if request:
            connection.recv(65536)  # the session tickets
            connection.sendall(records.data(request))
            assert connection.recv(65536)
        for _ in range(TOO_MUCH // (BURST * KEY_UPDATE_SIZE)):
            connection.sendall(records.key_updates(BURST) + (records.data(between) if between else b""))
        while connection.recv(65536):
            pass  # answers to the key updates


async def test_strangers_who_send_key_updates(start_relay, monkeypatch, tmp_path):
    """A stranger who sends key updates is dropped after some kilobytes, and other connections continue."""
    monkeypatch.setattr("relay_server.gateway.HEAD_TIMEOUT", 3600)
    relay = await start_relay()
    sender, listener = await relay.pair()
    floods = (asyncio.to_thread(flood, relay.target, tmp_path / f"keys-{number}") for number in range(4))
    await asyncio.gather(*floods)
    await sender.send(TEXT, b"through")
    assert (TEXT, b"through") == await listener.read_message()


async def test_listeners_with_key_updates_and_little_plaintext(start_relay, tmp_path):
    """A listener that sends a tiny ping after each series of key updates is dropped."""
    relay = await start_relay()
    sender, listener = await relay.pair()
    request = LISTEN.format(token=relay.token("agent")).encode()
    await asyncio.to_thread(flood, relay.target, tmp_path / "keys", request, PING)
    await sender.send(TEXT, b"through")
    assert (TEXT, b"through") == await listener.read_message()
