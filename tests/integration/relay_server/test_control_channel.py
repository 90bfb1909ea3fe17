"""The listener's side: tokens, recycling, choosing, and bad manners."""

import time
import uuid
from collections import Counter

import pytest

from relay_core.hyco.messages import MAX_CONTROL_BYTES, RenewToken
from tests.integration.relay_server.waiting import eventually
from tests.support.network.raw_websocket import BINARY, CLOSE, PING, PONG, TEXT, Frame, finish_websocket, frame, refused
from tests.support.network.relay import recycle_listeners


async def close_of(control):
    """Return code and reason of the Close that a listener gets next."""
    close = await control.read_frame()
    assert CLOSE == close.opcode
    return close.code, close.reason


async def test_a_listener_that_leaves_is_answered_and_gone(relay):
    """A clean Close is returned with its code, and the listener counts no more."""
    control = await relay.listen()
    await control.send_close(1000, "job done")
    assert (1000, "job done") == await close_of(control)
    assert b"" == await control.read_until_end()
    assert 0 == relay.server.metrics().active_listeners


async def test_an_expired_token_ends_the_control_channel(start_relay):
    """When the grace is over the listener gets 1008; relayed connections stay."""
    relay = await start_relay(limits={"token_expiry_grace": 0.0})
    control = await relay.listen(headers=relay.auth("agent", lifetime=2))
    sender, listener = await relay.pair(control)
    assert (1008, "The token is expired") == await close_of(control)
    await sender.send(TEXT, b"unaffected")
    assert (TEXT, b"unaffected") == await listener.read_message()


async def test_a_renewed_token_keeps_the_channel_open(start_relay):
    """A good renewToken gets no answer and moves the deadline."""
    relay = await start_relay(limits={"token_expiry_grace": 0.0})
    end = time.time() + 2
    control = await relay.listen(headers=relay.auth("agent", lifetime=2))
    await control.send(TEXT, RenewToken(relay.token("agent")).encode().encode())
    await eventually(lambda: time.time() > end)
    await relay.pair(control)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda relay: relay.token("agent", key="wrong"), "invalid signature"),
        (lambda relay: relay.token("agent", lifetime=-1), "expired"),
        (lambda relay: relay.token("client"), "'Listen' claim"),
        (lambda relay: relay.token("agent", uri="http://localhost/other"), "audience"),
        (lambda relay: "\ud800", "malformed"),
    ],
    ids=["signature", "expired", "right", "audience", "no text"],
)
async def test_a_bad_renewal_ends_the_control_channel(relay, make, text):
    """The successor of a token is checked like the first, and a bad one means 1008."""
    control = await relay.listen()
    await control.send(TEXT, RenewToken(make(relay)).encode().encode())
    code, reason = await close_of(control)
    assert (1008, True) == (code, text in reason)
    assert 0 == relay.server.metrics().active_listeners


@pytest.mark.parametrize("text", [b"no json", b"[]", b"{}", b'{"a":{},"b":{}}', b'{"renewToken":{}}', b"\xff"])
async def test_a_control_message_that_is_none_ends_the_channel(relay, text):
    """Garbage on a control channel is answered with 1002."""
    control = await relay.listen()
    await control.send(TEXT, text)
    assert 1002 == (await close_of(control))[0]


async def test_a_control_message_that_is_too_long_ends_the_channel(relay):
    """More than 64 KiB in one message is answered with 1009, before it is complete."""
    control = await relay.listen()
    await control.send(TEXT, b"x" * (MAX_CONTROL_BYTES + 1), fin=False)
    assert 1009 == (await close_of(control))[0]


async def test_messages_for_http_are_ignored(relay):
    """A response with its binary body, and messages of a later protocol, change nothing."""
    control = await relay.listen()
    await control.send(TEXT, b'{"response":{"requestId":"x","statusCode":200,"body":true}}')
    await control.send(BINARY, b"x" * 200_000)
    await control.send(TEXT, b'{"novelty":{}}')
    await relay.pair(control)


async def test_a_ping_on_the_control_channel_is_answered(relay):
    """Listeners may check the relay's life."""
    control = await relay.listen()
    await control.send(PING, b"?")
    assert Frame(PONG, b"?") == await control.read_frame()


async def test_a_silent_listener_is_dropped(start_relay):
    """A listener that answers no ping is taken out."""
    relay = await start_relay(limits={"ping_interval": 0.02, "ping_timeout": 0.05})
    control = await relay.listen()
    assert frame(PING)[:1] + b"\0" == await control.read_until_end()
    assert 0 == relay.server.metrics().active_listeners


async def test_listeners_are_recycled_after_a_while(start_relay):
    """With recycle_after each control channel ends with 1011, as Azure's do every day."""
    relay = await start_relay(limits={"recycle_after": 0.05})
    control = await relay.listen()
    assert (1011, "InternalServerError: NameRenewalFailed") == await close_of(control)


async def test_listeners_are_recycled_on_request(relay):
    """recycle_listeners ends control channels with 1011 and touches nothing else."""
    control = await relay.listen()
    sender, listener = await relay.pair(control)
    recycle_listeners(relay.server)
    assert 1011 == (await close_of(control))[0]
    assert 404 == (await refused(relay.target, "/$hc/hc", relay.auth("client"))).status
    await sender.send(TEXT, b"unaffected")
    assert (TEXT, b"unaffected") == await listener.read_message()


async def test_a_close_that_a_listener_does_not_answer_is_not_waited_for_forever(start_relay):
    """After close_timeout the connection is dropped."""
    relay = await start_relay(limits={"close_timeout": 0.05, "recycle_after": 0.01})
    control = await relay.listen()
    await control.read_until_end()
    assert 0 == relay.server.metrics().connections


async def rejected_by(relay, controls, extra=()):
    """Connect once, reject wherever the offer arrives, and return that control channel's index."""
    sender = await relay.start_connect(extra=extra)
    gateway = relay.server._gateway
    await eventually(lambda: len(gateway.matchmaker.rendezvous) == 1)
    waiting = [index for index, control in enumerate(controls) if control.reader._buffer]
    while not waiting:
        await eventually(lambda: any(control.reader._buffer for control in controls))
        waiting = [index for index, control in enumerate(controls) if control.reader._buffer]
    (index,) = waiting
    await relay.refused_accept(await relay.offer(controls[index]), "&sb-hc-statusCode=499")
    assert 499 == (await sender.answer()).status
    return index


async def test_every_listener_gets_calls(relay):
    """The choice is random: 40 calls reach each of three listeners (all but impossible to fail by chance)."""
    controls = [await relay.listen() for _ in range(3)]
    counted = Counter([await rejected_by(relay, controls) for _ in range(40)])
    assert {0, 1, 2} == set(counted)


async def test_a_sender_can_choose_its_listener(relay):
    """AllowedListeners and DisallowedListeners are honoured, and a wish nobody meets is a 404 of its own."""
    ids = [str(uuid.uuid4()) for _ in range(3)]
    controls = [await relay.listen(listener_id=listener_id) for listener_id in ids]
    for index, listener_id in enumerate(ids):
        allowed = [("Microsoft-Relay-AllowedListeners", listener_id.upper())]
        assert index == await rejected_by(relay, controls, allowed)
        others = ",".join(other for other in ids if other != listener_id)
        assert index == await rejected_by(relay, controls, [("Microsoft-Relay-DisallowedListeners", others)])
    nobody = [("Microsoft-Relay-DisallowedListeners", ", ".join(ids))]
    answer = await refused(relay.target, "/$hc/hc", relay.auth("client") + nobody)
    assert 404 == answer.status
    assert answer.reason.startswith("None of the connected listeners meet the AllowedListeners/DisallowedListeners")


async def test_the_choice_can_be_switched_off(start_relay):
    """A relay that does not honour the headers behaves like a service that does not know them."""
    relay = await start_relay(honour_listener_selection=False)
    control = await relay.listen()
    sender = await relay.start_connect(extra=[("Microsoft-Relay-AllowedListeners", str(uuid.uuid4()))])
    offer = await relay.offer(control)
    assert "Microsoft-Relay-AllowedListeners" in offer.connectHeaders
    await relay.accept(offer)
    await finish_websocket(sender)
