"""Facts about the management port: what a supervisor, Prometheus and `relay-server status` read there."""

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay_core.errors import ConfigurationError
from relay_core.net.loopback import FOREIGN_HOST
from relay_server import management as management_rules
from relay_server.config.model import ManagementSettings
from relay_server.management import MAX_CONNECTIONS, Management
from relay_server.protocol.http import MAX_HEAD_BYTES
from tests.integration.relay_server.conftest import KEYS, Relay
from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.network.raw_websocket import TEXT, refused, request


class Client:
    """Sends requests to a management port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def request(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
        return await asyncio.to_thread(self._request, path, method, host)

    def _request(self, path: str, method: str, host: str) -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)) as connection:
            connection.request(method, path, headers={"Host": host})
            response = connection.getresponse()
            return response.status, response.read().decode()

    async def metrics(self) -> dict[str, float]:
        """Return the value of each sample, by name and label."""
        status, text = await self.request("/metrics")
        assert 200 == status
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


@pytest.fixture
async def management(relay: Relay) -> AsyncIterator[Client]:
    async with Management(relay.server, ManagementSettings(port=0)) as running:
        yield Client(running.port)


async def test_healthy_until_it_shuts_down(relay, management):
    """`/healthz` is 200 while the relay accepts connections and 503 as soon as it does not."""
    assert (200, "ok\n") == await management.request("/healthz")
    assert (200, "") == await management.request("/healthz", "HEAD")
    await relay.server.stop()
    assert (503, "shutting down\n") == await management.request("/healthz")


async def test_metrics_have_the_names_of_azure(relay, management):
    """Listeners, senders, payload and errors of each hybrid connection are counted where Azure Monitor counts them."""
    sender, listener = await relay.pair(await relay.listen())
    await sender.send(TEXT, b"12345")
    await listener.read_message()
    await refused(relay.target, "/$hc/hc?sb-hc-action=listen")
    await refused(relay.target, "/$hc/hc/deeper", relay.auth("client", "hc/deeper"))
    await refused(relay.target, "/$hc/hc/deeper")
    expected = {
        "relay_active_listeners hc": 1,
        "relay_active_listeners hc/deeper": 0,
        "relay_active_connections hc": 1,
        "relay_pending_senders hc": 0,
        "relay_listener_connections_success_total hc": 1,
        "relay_listener_connections_client_error_total hc": 1,
        "relay_sender_connections_success_total hc": 1,
        "relay_sender_connections_success_total hc/deeper": 0,
        "relay_sender_connections_client_error_total hc": 0,
        "relay_sender_connections_client_error_total hc/deeper": 2,
        "relay_sender_connections_server_error_total hc/deeper": 0,
        "relay_sender_disconnects_total hc": 0,
        "relay_bytes_transferred_total to_listeners hc": 5,
        "relay_bytes_transferred_total to_listeners hc/deeper": 0,
        "relay_refused_requests_total": 3,
    }
    found = await management.metrics()
    assert expected == {name: found[name] for name in expected}
    _, text = await management.request("/metrics")
    assert "relay_listener_connections_success_total ListenerConnections-Success\n" in text
    sender.abort()
    await eventually(lambda: not relay.server.metrics().active_senders)
    assert 1 == (await management.metrics())["relay_sender_disconnects_total hc"]


async def test_unknown_paths_share_one_label(relay, management):
    """Requests of paths that are not configured are counted together, so that no sender creates time series."""
    await refused(relay.target, "/$hc/nothing?sb-hc-action=connect")
    await request(relay.target, "GET", "/random/path")
    found = await management.metrics()
    assert 2 == found["relay_sender_connections_client_error_total (other)"]
    labels = {name.split(" ")[1] for name in found if name.startswith("relay_active_listeners ")}
    assert {"(other)", *relay.server.listener_counts()} == labels


async def test_http_requests_are_counted(relay, management):
    """A refused HTTP request of a sender is an error of the client; one that was answered has a metric of its own."""
    assert 401 == (await request(relay.target, "GET", "/hc")).status
    found = await management.metrics()
    expected = {"relay_http_requests_total hc": 0, "relay_sender_connections_client_error_total hc": 1}
    assert expected == {name: found[name] for name in expected}


async def test_status_shows_no_secret(relay, management):
    """The status has the listeners of each hybrid connection, but no key."""
    await relay.listen()
    status, text = await management.request("/status")
    found = json.loads(text)
    assert (200, True) == (status, found["serving"])
    assert {"hc": 1, "open": 0, "hc/deeper": 0, "Mixed.Case": 0} == found["hybrid_connections"]
    assert f"wss://localhost:{relay.server.port}" == found["address"]
    assert not [key for key in KEYS.values() if key in text]


async def test_other_requests_are_refused(management):
    """Another path is a 404, another method a 405, and what is not HTTP a 400."""
    assert 404 == (await management.request("/"))[0]
    assert 405 == (await management.request("/metrics", "POST"))[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", management.port)
    writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/status"])
async def test_foreign_host(management, path):
    """A web page whose host name was changed to resolve to this machine reads nothing."""
    assert (403, FOREIGN_HOST) == await management.request(path, host="evil.example")
    assert 200 == (await management.request(path, host="localhost"))[0]


async def test_too_many_connections_are_dropped(management, monkeypatch):
    """A connection above the limit is closed without a response, and the port answers again when others have ended."""
    monkeypatch.setattr(management_rules, "REQUEST_TIMEOUT", 3600.0)
    silent = [await asyncio.open_connection("127.0.0.1", management.port) for _ in range(MAX_CONNECTIONS)]
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        await management.request("/healthz")
    for _, writer in silent:
        writer.close()
    while True:
        with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
            assert (200, "ok\n") == await management.request("/healthz")
            return


async def test_a_silent_connection_is_closed(management, monkeypatch):
    """A request that is not complete within the time limit gets no response."""
    monkeypatch.setattr(management_rules, "REQUEST_TIMEOUT", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", management.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()


async def test_a_large_request_is_refused(management):
    """A head above the limit is a 431, although its end has not arrived."""
    reader, writer = await asyncio.open_connection("127.0.0.1", management.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ".ljust(MAX_HEAD_BYTES + 1, b"x"))
    response = await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()
    assert response.startswith(b"HTTP/1.1 431 ")


async def test_port_in_use(relay, management):
    """A port that another program has is an error that names [management]."""
    second = Management(relay.server, ManagementSettings(port=management.port))
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {management.port}"):
        await second.__aenter__()
