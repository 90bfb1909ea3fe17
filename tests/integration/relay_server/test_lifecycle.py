"""Starting, stopping, disturbances, and what the relay reports about itself."""

import asyncio
import logging
import socket
from dataclasses import replace

import pytest

from relay_core.errors import ConfigurationError, LocalPortInUse
from relay_server.metrics import Metrics
from relay_server.protocol.http import MAX_HEAD_BYTES
from relay_server.server import RelayServer
from tests.integration.relay_server.conftest import KEYS
from tests.integration.relay_server.http_requests import ask, ask_again, get_request, respond
from tests.integration.relay_server.waiting import eventually
from tests.support.network.raw_websocket import CLOSE, TEXT, RawConnection, finish_websocket, refused


async def test_a_relay_knows_where_it_is(relay):
    """Port and public address are known once it serves."""
    assert f"localhost:{relay.server.port}" == relay.server.public_address
    assert 0 == relay.server.metrics().connections


async def test_a_port_in_use_is_an_error_with_its_number(config, relay):
    """The error of a second relay on a port names the port."""
    second = RelayServer(replace(config, port=relay.server.port))
    with pytest.raises(LocalPortInUse, match=f"port {relay.server.port} "):
        await second.start()


async def test_an_address_of_another_machine_is_a_configuration_error(config):
    """An address that is not ours is reported as a fault of the configuration."""
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1"):
        await RelayServer(replace(config, bind="192.0.2.1")).start()


async def test_binding_beyond_loopback_is_warned_about(config, caplog):
    """A relay that others can reach logs a warning."""
    with caplog.at_level(logging.WARNING):
        async with RelayServer(replace(config, bind="0.0.0.0")):
            assert "anyone who can reach this machine" in caplog.text


async def test_a_relay_can_be_stopped_and_started_again_on_its_port(relay):
    """Stop turns everybody away, start brings back the same port, and tokens still work."""
    await relay.listen()
    port = relay.server.port
    await relay.server.stop()
    assert relay.server.metrics().active_listeners == relay.server.metrics().connections == 0
    with pytest.raises(ConnectionRefusedError):
        await RawConnection.dial(relay.target)
    await relay.server.start()
    assert port == relay.server.port
    await relay.pair()


async def test_a_relay_that_was_started_again_keeps_connections_open(relay):
    """A sender may use its connection for another HTTP request, as before the stop."""
    await relay.server.stop()
    await relay.server.start()
    control = await relay.listen()
    sender = await ask(relay)
    for _ in range(2):
        await respond(control, await get_request(control))
        assert 200 == (await sender.answer()).status
        await ask_again(relay, sender)


async def test_a_stop_takes_leave_of_everybody(relay):
    """Listeners and relayed sides get 1001, waiting senders a 503, and nobody is kept waiting."""
    control = await relay.listen()
    sides = await relay.pair(control)
    waiting = await relay.start_connect()
    await relay.offer(control)
    stopping = asyncio.get_running_loop().create_task(relay.server.stop())
    for websocket in (control, *sides):
        close = await websocket.read_frame()
        assert (CLOSE, 1001) == (close.opcode, close.code)
        await websocket.send_close(1001)
    answer = await waiting.answer()
    assert (503, True) == (answer.status, answer.reason.startswith("The relay is shutting down"))
    await waiting.close()
    await stopping


async def test_a_stop_does_not_wait_for_the_deaf(relay):
    """Peers that answer no Close are dropped after drain_timeout."""
    control = await relay.listen()
    await relay.server.stop()
    received = await control.read_until_end()
    assert received.startswith(bytes([0x80 | CLOSE]))
    assert 0 == relay.server.metrics().connections


async def test_drop_all_is_a_network_failure(relay):
    """Every connection ends without a Close, and the relay serves on."""
    control = await relay.listen()
    sides = await relay.pair(control)
    relay.server.drop_all()
    for websocket in (control, *sides):
        assert b"" == await websocket.read_until_end()
    await eventually(lambda: relay.server.metrics().connections == 0)
    await relay.pair()


async def test_metrics_count_what_happens(relay):
    """Listeners, senders, payload per direction, refusals and rejections are counted, during and after."""
    control = await relay.listen()
    sender, listener = await relay.pair(control)
    await sender.send(TEXT, b"12345")
    await listener.read_message()
    await listener.send(TEXT, b"123")
    await sender.read_message()
    rejected = await relay.start_connect()
    await relay.refused_accept(await relay.offer(control), "&sb-hc-statusCode=404")
    await rejected.answer()
    await rejected.close()
    waiting = await relay.start_connect()
    await relay.offer(control)
    await refused(relay.target, "/$hc/hc")
    await eventually(lambda: relay.server.metrics().connections == 4)
    expected = Metrics(
        active_listeners=1,
        active_senders=1,
        pending_senders=1,
        connections=4,
        unauthenticated=0,
        listener_connections=1,
        sender_connections=1,
        http_requests=0,
        listener_disconnects=0,
        sender_disconnects=0,
        rejected=1,
        refused=1,
        listener_client_errors=0,
        listener_server_errors=0,
        sender_client_errors=1,
        sender_server_errors=0,
        bytes_to_listeners=5,
        bytes_to_senders=3,
        buffered_bytes=0,
    )
    assert expected == relay.server.metrics()
    for websocket in (waiting, sender):
        websocket.abort()
    await eventually(lambda: relay.server.metrics().connections == 1)
    ended = relay.server.metrics()
    assert (0, 0, 5, 3) == (
        ended.active_senders,
        ended.pending_senders,
        ended.bytes_to_listeners,
        ended.bytes_to_senders,
    )


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x00", b"\x00" * 1000, b""])
async def test_garbage_on_the_port_disturbs_nobody(relay, garbage):
    """Bytes that are not TLS are dropped, and others do not notice."""
    sender, listener = await relay.pair()
    with socket.create_connection(("127.0.0.1", relay.server.port)) as raw:
        raw.sendall(garbage)
    await sender.send(TEXT, b"undisturbed")
    assert (TEXT, b"undisturbed") == await listener.read_message()


@pytest.mark.parametrize(
    "garbage", [b"\x00\xff" * 100, b"GET\r\n\r\n", b"x" * (MAX_HEAD_BYTES + 1), b"GET / HTTP/1.0\r\n\r\n"]
)
async def test_garbage_inside_tls_is_refused(relay, garbage):
    """Bytes that are not a valid HTTP request are answered with an error, and the connection is closed."""
    async with await RawConnection.dial(relay.target) as connection:
        connection.writer.write(garbage)
        assert (await connection.answer()).status in {400, 401, 431}
        assert b"" == await connection.read_until_end()


async def test_a_request_that_never_comes_is_not_waited_for(relay, monkeypatch):
    """A connection without a request is dropped after a while."""
    monkeypatch.setattr("relay_server.gateway.HEAD_TIMEOUT", 0.05)
    async with await RawConnection.dial(relay.target) as connection:
        connection.writer.write(b"GET / HT")
        assert b"" == await connection.read_until_end()


async def test_nothing_secret_is_logged(relay, caplog):
    """Keys, tokens, rendezvous secrets and the sender's headers stand in no log line, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    tokens = [relay.token(rule) for rule in ("agent", "client")]
    control = await relay.listen(headers=[("ServiceBusAuthorization", tokens[0])])
    sender = await relay.start_connect(
        headers=[("ServiceBusAuthorization", tokens[1]), ("Cookie", "c00kie")], query="app=qu3ry"
    )
    offer = await relay.offer(control)
    await refused(relay.target, offer.target.replace("&sb-hc-secret=", "&sb-hc-secret=0"))
    listener = await relay.accept(offer)
    await finish_websocket(sender)
    await sender.send_raw(b"\x81\x00")
    await listener.read_until_end()
    rejected = await relay.start_connect(extra=[("Cookie", "c00kie")])
    other = await relay.offer(control)
    await relay.refused_accept(other, "&sb-hc-statusCode=400&sb-hc-statusDescription=r3ason")
    await rejected.answer()
    await control.send(TEXT, b'{"renewToken":{"token":"' + tokens[1].encode() + b'"}}')
    assert 1008 == (await control.read_frame()).code
    await refused(relay.target, f"/$hc/hc?sb-hc-token={tokens[0].replace(' ', '%20')}x")
    secrets = [offer.address.rpartition("=")[2], other.address.rpartition("=")[2]]
    signatures = [token.partition("sig=")[2].partition("&")[0] for token in tokens]
    for secret in (*KEYS.values(), *signatures, *secrets, "c00kie", "qu3ry", "r3ason", "SharedAccessSignature"):
        assert secret not in caplog.text
    assert "listener connected on 'hc'" in caplog.text
