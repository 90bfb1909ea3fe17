"""How a sender and a listener meet, or do not."""

import asyncio
import uuid

import pytest

from relay_server.relaying import matchmaking
from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.network.raw_websocket import TEXT, NotSwitched, finish_websocket, frame, open_websocket, refused


async def test_an_accept_message_has_everything_a_client_needs(relay):
    """Id, address, headers as texts, and where the sender came from."""
    control = await relay.listen()
    guid = str(uuid.uuid4())
    sender = await relay.start_connect(query=f"sb-hc-id={guid}", extra=[("X-App", "1"), ("x-app", "2")])
    offer = await relay.offer(control)
    assert f"{guid}_G0" == offer.id
    assert offer.address.startswith(
        f"wss://localhost:{relay.server.port}/$hc/hc?sb-hc-action=accept&sb-hc-id={guid}_G0&"
    )
    assert "1,2" == offer.connectHeaders["X-App"]
    assert {"Host", "Sec-WebSocket-Key", "Sec-WebSocket-Version"} <= set(offer.connectHeaders)
    assert "ServiceBusAuthorization" not in offer.connectHeaders
    assert {"address": "127.0.0.1", "port": sender.writer.get_extra_info("sockname")[1]} == offer.remoteEndpoint


async def test_path_suffix_and_query_reach_the_listener(relay):
    """The application's part of the URL is passed on to the letter, the protocol's is not."""
    control = await relay.listen("Mixed.Case")
    headers = relay.auth("client", "mixed.case")
    query = "a=%2B&&sb-hc-token=x&b="
    sender = await relay.start_connect("mIxEd.cAsE/sfx/%C3%A4", query=query, headers=headers)
    offer = await relay.offer(control)
    assert offer.target.startswith("/$hc/mIxEd.cAsE/sfx/%C3%A4?a=%2B&&b=&sb-hc-action=accept&sb-hc-id=")
    await relay.accept(offer)
    await finish_websocket(sender)


async def test_the_longest_name_gets_the_call(relay):
    """`hc/deeper/x` is for the listener on `hc/deeper`, although `hc` would match too."""
    await relay.listen("hc")
    deeper = await relay.listen("hc/deeper")
    await relay.start_connect("hc/deeper/x")
    assert "/$hc/hc/deeper/x?" in (await relay.offer(deeper)).address


async def test_the_public_address_is_configured_and_never_the_request_s(start_relay):
    """A forged Host header changes nothing in the address that listeners dial."""
    relay = await start_relay(public_address="relay.example:444")
    control = await relay.listen()
    await relay.start_connect(extra=[("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test")])
    assert (await relay.offer(control)).address.startswith("wss://relay.example:444/$hc/")


async def test_an_id_that_is_no_guid_is_replaced(relay):
    """A sender with an unusable id is relayed under a fresh one."""
    control = await relay.listen()
    sender = await relay.start_connect(query="sb-hc-id=123456")
    offer = await relay.offer(control)
    assert 36 == len(offer.id.removesuffix("_G0"))
    await relay.accept(offer)
    assert (await finish_websocket(sender)).answered.headers["trackingid"].endswith("_G0")


async def test_two_senders_with_one_id_are_kept_apart(relay):
    """The second one waits under an id of its own."""
    control = await relay.listen()
    query = f"sb-hc-id={uuid.uuid4()}"
    first, second = [await relay.start_connect(query=query) for _ in range(2)]
    offers = [await relay.offer(control) for _ in range(2)]
    assert offers[0].id != offers[1].id
    for offer in offers:
        await relay.accept(offer)
    await finish_websocket(first)
    await finish_websocket(second)


async def test_both_sides_get_the_subprotocol_the_listener_chose(relay):
    """The sender's list reaches the listener, and the listener's choice both 101s."""
    control = await relay.listen()
    sender = await relay.start_connect(extra=[("Sec-WebSocket-Protocol", "one, two")])
    offer = await relay.offer(control)
    assert "one, two" == offer.connectHeaders["Sec-WebSocket-Protocol"]
    listener = await relay.accept(offer, [("Sec-WebSocket-Protocol", "two")])
    await finish_websocket(sender)
    assert {"two"} == {side.answered.headers["sec-websocket-protocol"] for side in (sender, listener)}


async def test_an_offered_extension_is_no_agreed_one(relay):
    """Without the listener's word no extension stands in either 101."""
    sender, listener = await relay.pair(sender={"extra": [("Sec-WebSocket-Extensions", "permessage-deflate")]})
    assert "sec-websocket-extensions" not in sender.answered.headers
    assert "sec-websocket-extensions" not in listener.answered.headers


@pytest.mark.parametrize("status", [400, 403, 404, 421, 502, 999])
async def test_a_rejection_reaches_the_sender(relay, status):
    """The listener gets 410 and the sender status and text, unadorned."""
    sender, offer = await relay.waiting_sender()
    suffix = f"&sb-hc-statusCode={status}&sb-hc-statusDescription=not%20%22here%22"
    assert (410, "Gone") == ((gone := await relay.refused_accept(offer, suffix)).status, gone.reason)
    answer = await sender.answer()
    assert (status, 'not "here"') == (answer.status, answer.reason)
    assert "trackingid" in answer.headers


async def test_a_rejection_without_the_prefix_counts(relay):
    """hyco-websocket leaves the prefix out."""
    control = await relay.listen()
    sender = await relay.start_connect()
    assert (
        410 == (await relay.refused_accept(await relay.offer(control), "&statusCode=418&statusDescription=tea")).status
    )
    assert 418 == (await sender.answer()).status


async def test_a_sender_cannot_reject_itself(relay):
    """The sender's own parameters named like a rejection's are only its parameters."""
    control = await relay.listen()
    sender = await relay.start_connect(query="statusCode=404&sb-hc-statusCode=404")
    await relay.accept(await relay.offer(control))
    await finish_websocket(sender)


async def test_a_rejection_with_a_bad_status_changes_nothing(relay):
    """The listener gets 400 and may still accept."""
    sender, offer = await relay.waiting_sender()
    assert 400 == (await relay.refused_accept(offer, "&sb-hc-statusCode=many")).status
    await relay.accept(offer)
    await finish_websocket(sender)


async def test_an_address_works_once(relay):
    """The second accept is a 400 and does not disturb the first."""
    sender, offer = await relay.waiting_sender()
    listener = await relay.accept(offer)
    assert 400 == (await relay.refused_accept(offer)).status
    await finish_websocket(sender)
    await sender.send(TEXT, b"still here")
    assert (TEXT, b"still here") == await listener.read_message()


async def test_the_id_alone_is_not_enough(relay):
    """Without the secret of the address a rendezvous is out of reach, and stays open for its listener."""
    sender, offer = await relay.waiting_sender()
    bare = offer.target.partition("&sb-hc-secret=")[0]
    for path in (bare, f"{bare}&sb-hc-secret={'0' * 32}"):
        assert 400 == (await refused(relay.target, path)).status
    await relay.accept(offer)
    await finish_websocket(sender)


async def test_a_sender_that_left_is_forgotten(relay):
    """Nothing waits for it, and a late accept is a 400."""
    sender, offer = await relay.waiting_sender()
    sender.abort()
    await eventually(lambda: relay.server.metrics().pending_senders == 0)
    assert 400 == (await relay.refused_accept(offer)).status


async def test_what_either_side_sends_too_early_arrives(relay):
    """Frames in the same packet as the request are relayed once the two have met."""
    control = await relay.listen()
    sender = await relay.start_connect()
    await sender.send(TEXT, b"early")
    await control.send(0xA, b"")
    listener = await relay.accept(await relay.offer(control))
    await finish_websocket(sender)
    assert (TEXT, b"early") == await listener.read_message()


async def test_a_sender_that_floods_before_its_answer_is_dropped(relay):
    """Early bytes are kept within a limit."""
    await relay.listen()
    sender = await relay.start_connect()
    sender.writer.write(frame(TEXT, b"x" * 200_000))
    assert b"" == await sender.read_until_end()


async def test_a_listener_s_end_does_not_end_its_rendezvous(relay):
    """An offer that was made can be accepted although the control channel is gone."""
    control = await relay.listen()
    sender = await relay.start_connect()
    offer = await relay.offer(control)
    control.abort()
    await eventually(lambda: relay.server.metrics().active_listeners == 0)
    await relay.accept(offer)
    await finish_websocket(sender)


async def test_a_missing_action_is_a_connect(relay):
    """A sender that names no action is a sender."""
    control = await relay.listen()
    sender = await relay.start_connect()
    await relay.offer(control)
    sender.abort()
    answer = await refused(relay.target, "/$hc/hc", relay.auth("agent"))
    assert "'Send' claim" in answer.reason


async def test_a_dead_listener_is_never_offered_anything(relay):
    """Dropping a control channel takes the listener out at once, and the next one gets the call."""
    dead, alive = await relay.listen(), await relay.listen()
    dead.abort()
    await eventually(lambda: relay.server.metrics().active_listeners == 1)
    await relay.start_connect()
    await relay.offer(alive)


async def test_if_the_first_listener_cannot_be_reached_the_next_one_is(relay, monkeypatch):
    """A failed write costs the sender nothing."""
    controls = [await relay.listen() for _ in range(2)]
    candidates = relay.server._gateway.matchmaker.registry.listeners
    monkeypatch.setattr(matchmaking.secrets, "randbelow", lambda count: 0)
    candidates[0]._websocket.connection._transport.close()
    await relay.start_connect()
    await relay.offer(controls[1])


async def test_no_listener_that_can_be_reached_is_a_404(relay):
    """If every write fails the answer is the same as without listeners."""
    await relay.listen()
    relay.server._gateway.matchmaker.registry.listeners[0]._websocket.connection._transport.close()
    answer = await refused(relay.target, "/$hc/hc", relay.auth("client"))
    assert (404, True) == (answer.status, "no listeners connected" in answer.reason)


async def test_a_listener_reaches_the_relay_by_name_and_address(relay):
    """The certificate is good for the loopback address too."""
    target = type(relay.target)(relay.target.port, relay.target.ca_file, host="127.0.0.1")
    await relay.keep(await open_websocket(target, "/$hc/hc?sb-hc-action=listen", relay.auth("agent")))


async def test_the_only_listener_leaves_before_it_accepts(relay):
    """The sender is refused as without any listener, long before its time limit."""
    control = await relay.listen()
    sender = await relay.start_connect()
    await relay.offer(control)
    control.writer.close()
    with pytest.raises(NotSwitched) as caught:
        await finish_websocket(sender)
    assert 404 == caught.value.answer.status


async def test_a_listener_that_leaves_before_it_accepts(relay):
    """The sender is offered to the other listener, at the same address."""
    controls = [await relay.listen(), await relay.listen()]
    sender = await relay.start_connect()
    offers = [asyncio.ensure_future(relay.offer(control)) for control in controls]
    done, (waiting,) = await asyncio.wait(offers, return_when=asyncio.FIRST_COMPLETED)
    first = offers.index(done.pop())
    controls[first].writer.close()
    offer = await asyncio.wait_for(waiting, DEADLINE)
    assert offer.address == offers[first].result().address
    await relay.accept(offer)
    await finish_websocket(sender)
