"""Every answer of the status table, asked for over real sockets."""

import json
import uuid
from urllib.parse import quote_plus

import pytest

from tests.support.network.raw_websocket import finish_websocket, open_websocket, refused

LISTEN = "/$hc/hc?sb-hc-action=listen"
CONNECT = "/$hc/hc?sb-hc-action=connect"


async def test_a_good_listener_gets_101_and_its_tracking_id(relay):
    """The 101 repeats the id with this gateway's mark."""
    guid = str(uuid.uuid4())
    control = await relay.listen(listener_id=guid)
    assert f"{guid}_G0" == control.answered.headers["trackingid"]
    assert "sec-websocket-extensions" not in control.answered.headers


async def test_the_token_may_stand_in_the_url(relay):
    """A token as sb-hc-token counts, with its blank written as a plus."""
    token = quote_plus(relay.token("agent"))
    await relay.keep(await open_websocket(relay.target, f"{LISTEN}&sb-hc-token={token}"))


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("agent", {"key": "key-of-second-" + "x" * 20}),
        ("root", {}),
        ("agent", {"uri": "http://localhost:443/hc/"}),
        ("agent", {"uri": "sb://relay.test/HC"}),
        ("root", {"uri": "http://localhost/"}),
    ],
    ids=["secondary key", "namespace rule", "port and slash", "alias", "namespace audience"],
)
async def test_every_usual_token_is_good(relay, rule, options):
    """Both keys, both levels of rules and the audiences of all clients open a control channel."""
    await relay.listen(headers=relay.auth(rule, **options))


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (lambda relay: [], "no security token"),
        (lambda relay: [("ServiceBusAuthorization", "nonsense")], "malformed"),
        (lambda relay: relay.auth("agent", key="wrong"), "invalid signature"),
        (lambda relay: relay.auth("agent", lifetime=-60), "expired"),
        (lambda relay: relay.auth("agent", uri="http://elsewhere.test/hc"), "audience"),
        (lambda relay: relay.auth("client"), "'Listen' claim"),
    ],
    ids=["missing", "malformed", "signature", "expired", "audience", "right"],
)
async def test_a_listener_without_a_good_token_gets_401(relay, headers, text):
    """Each fault of a token is a 401 that names the fault."""
    answer = await refused(relay.target, LISTEN, headers(relay))
    assert 401 == answer.status
    assert text in answer.reason


async def test_a_sender_needs_send(relay):
    """A Listen key opens no connection."""
    answer = await refused(relay.target, CONNECT, relay.auth("agent"))
    assert (401, True) == (answer.status, "'Send' claim" in answer.reason)


async def test_an_anonymous_sender_is_let_in_where_that_is_allowed(relay):
    """Without client authorization no token is needed; the listener's still is."""
    assert 401 == (await refused(relay.target, "/$hc/open?sb-hc-action=listen")).status
    control = await relay.listen("open")
    sender = await relay.start_connect("open", headers=[])
    await relay.accept(await relay.offer(control))
    await finish_websocket(sender)


async def test_without_a_token_existence_is_not_revealed(relay):
    """401 comes before 404, and the same words answer for both kinds of path."""
    phrases = {
        (await refused(relay.target, f"/$hc/{path}?sb-hc-action=connect")).reason.partition(".")[0]
        for path in ("hc", "nothing")
    }
    assert 1 == len(phrases)


@pytest.mark.parametrize("action", ["listen", "connect"])
async def test_an_unknown_hybrid_connection_is_a_404_for_a_good_token(relay, action):
    """A namespace key's holder learns that the name is wrong."""
    answer = await refused(relay.target, f"/$hc/nothing?sb-hc-action={action}", relay.auth("root", "nothing"))
    assert (404, True) == (answer.status, answer.reason.startswith("Endpoint does not exist. TrackingId:"))


async def test_nobody_listening_is_a_404_of_its_own(relay):
    """The text differs from that for a hybrid connection that does not exist."""
    answer = await refused(relay.target, CONNECT, relay.auth("client"))
    assert 404 == answer.status
    # language: keep - Azure's text
    assert answer.reason.startswith("There are no listeners connected for the endpoint. TrackingId:")


async def test_an_error_carries_tracking_system_and_time_and_the_same_as_json(relay):
    """Reason phrase, TrackingId header and JSON body agree, and the response has no Via."""
    guid = str(uuid.uuid4())
    answer = await refused(relay.target, f"{CONNECT}&sb-hc-id={guid}", relay.auth("client"))
    assert f"TrackingId:{guid}_G0, SystemTracker:sb://localhost/hc, Timestamp:" in answer.reason
    assert f"{guid}_G0" == answer.headers["trackingid"]
    assert {"error": {"code": "NoListeners", "message": answer.reason}} == json.loads(answer.body)
    assert "via" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/$hc/hc?sb-hc-action=dance",
        "/$hc/hc?sb-hc-action=accept",
        "/$hc/hc?sb-hc-action=accept&sb-hc-id=123456",
        f"/$hc/hc?sb-hc-action=accept&sb-hc-id={uuid.uuid4()}_G0&sb-hc-secret={'0' * 32}",
    ],
    ids=["unknown action", "accept without id", "accept with a non-GUID id", "accept of an unknown id"],
)
async def test_a_senseless_request_is_a_400(relay, path):
    """Unknown gestures and ids are distinguished from missing rights."""
    assert 400 == (await refused(relay.target, path, relay.auth("root"))).status


@pytest.mark.parametrize("missing", ["Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version"])
async def test_an_incomplete_handshake_is_a_400(relay, missing):
    """A request under /$hc/ that is not a websocket handshake is refused."""
    assert 400 == (await refused(relay.target, LISTEN, relay.auth("agent"), without=[missing])).status


async def test_a_head_that_is_too_large_is_a_431(relay):
    """Headers beyond the limit are refused, not stored."""
    assert 431 == (await refused(relay.target, LISTEN, [("X", "x" * 40_000)])).status


async def test_a_token_of_eight_kilobytes_in_the_url_is_read(relay):
    """Long JWTs in URLs reach the verifier, which does not know them."""
    answer = await refused(relay.target, f"{LISTEN}&sb-hc-token={'j' * 8192}")
    assert (401, True) == (answer.status, "malformed" in answer.reason)


async def test_the_26th_listener_is_refused(relay):
    """25 listeners are welcome; the next one reads which quota it met, and other hybrid connections are free."""
    for _ in range(25):
        await relay.listen()
    answer = await refused(relay.target, LISTEN, relay.auth("agent"))
    assert (403, True) == (answer.status, "MaximumListenersPerEndpoint" in answer.reason)
    await relay.listen("open")


@pytest.mark.parametrize("status", [408, 504])
async def test_a_listener_that_does_not_come_is_a_timeout(start_relay, status):
    """The sender gets the configured status, and a late accept a 400."""
    relay = await start_relay(limits={"accept_timeout": 0.05, "accept_timeout_status": status})
    sender, offer = await relay.waiting_sender()
    answer = await sender.answer()
    assert status == answer.status
    assert answer.reason.startswith(
        "None of the connected listeners accepted the connection within the allowed timeout"
    )
    assert 400 == (await relay.refused_accept(offer)).status
    assert 0 == relay.server.metrics().pending_senders


@pytest.mark.parametrize("path", [CONNECT, "/hc"])
async def test_a_defect_of_the_relay_is_a_500(relay, path, monkeypatch, caplog):
    """The client gets an answer at once, which does not contain the error, and the log has it."""
    monkeypatch.setattr(relay.server._gateway.matchmaker, "candidates", lambda *_: 1 / 0)
    answer = await refused(relay.target, path, relay.auth("client"))
    assert (500, False) == (answer.status, "division" in answer.reason)
    assert "division by zero" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("header", ["Allowed", "Disallowed"])
async def test_no_suitable_listener_is_a_404_of_its_own(relay, header):
    """The text names the criteria that no listener meets."""
    guid = str(uuid.uuid4())
    await relay.listen(listener_id=guid)
    chosen = guid if header == "Disallowed" else str(uuid.uuid4())
    headers = [*relay.auth("client"), (f"Microsoft-Relay-{header}Listeners", chosen)]
    answer = await refused(relay.target, CONNECT, headers)
    assert (404, True) == (answer.status, answer.reason.startswith("None of the connected listeners meet the"))
