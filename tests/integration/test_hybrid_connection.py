"""Facts about our listener and sender against a real relay."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_core.auth.sas_credentials import SasKeyCredential, SasTokenCredential
from relay_core.errors import (
    ConnectionLost,
    HybridConnectionNotFound,
    NoListener,
    ProtocolError,
    Rejected,
    RelayDebugError,
    RelayUnreachable,
    TooManyListeners,
    Unauthorized,
    UntrustedCertificate,
)
from relay_core.hyco import listener as listener_rules
from relay_core.hyco.address import Endpoint
from relay_core.hyco.listener import ListenerState
from relay_core.hyco.sas import Token, mint
from relay_core.net import HybridConnectionListener, Offer, WebSocket, connect
from relay_core.net.relay_tls import client_tls
from relay_server.config.model import Limits
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.network.impostor import behind_a_switch, impostor
from tests.support.network.relay import LocalRelay, local_relay, recycle_listeners


@contextlib.asynccontextmanager
async def listening(relay: LocalRelay, **options) -> AsyncIterator[HybridConnectionListener]:
    """Run a listener; the block begins when it listens."""
    up = asyncio.Event()

    def note(state: ListenerState, _error: object) -> None:
        if state is ListenerState.LISTENING:
            up.set()

    credential = options.pop("credential", relay.listener)
    async with HybridConnectionListener(
        relay.endpoint, credential, tls=relay.tls, on_state=note, **options
    ) as listener:
        await asyncio.wait_for(up.wait(), DEADLINE)
        yield listener


async def next_offer(listener: HybridConnectionListener) -> Offer:
    async for offer in listener:
        return offer
    raise AssertionError("the listener ended")


async def pair(relay: LocalRelay, listener: HybridConnectionListener, **options) -> tuple[WebSocket, WebSocket]:
    """Return both ends of a rendezvous."""

    async def accept() -> WebSocket:
        return await (await next_offer(listener)).accept()

    sender, receiver = await asyncio.gather(connect(relay.endpoint, relay.sender, tls=relay.tls, **options), accept())
    return sender, receiver


async def test_messages_go_both_ways(relay: LocalRelay) -> None:
    """Text stays text and bytes stay bytes, in both directions."""
    async with listening(relay) as listener:
        sender, receiver = await pair(relay, listener)
        for message in ("grüße", os.urandom(300_000), ""):
            await sender.send(message)
            assert message == await receiver.receive()
            await receiver.send(message)
            assert message == await sender.receive()
        await asyncio.gather(sender.close(), receiver.close())


async def test_an_offer_shows_the_sender(relay: LocalRelay) -> None:
    """The listener sees the sender's headers, address and id, and never its token."""
    async with listening(relay) as listener:
        connecting = asyncio.ensure_future(connect(relay.endpoint, relay.sender, tls=relay.tls, headers={"X-App": "1"}))
        offer = await next_offer(listener)
        assert offer.header("x-app") == "1"
        assert offer.header("ServiceBusAuthorization") is None
        assert offer.remote_endpoint.address == "127.0.0.1"
        assert (offer.path, offer.query) == ("", "")
        receiver = await offer.accept()
        await (await connecting).close()
        await receiver.close()


async def test_a_subprotocol_is_agreed_end_to_end(relay: LocalRelay) -> None:
    """The sender's first subprotocol is chosen, and both sides know it."""
    async with listening(relay) as listener:
        sender, receiver = await pair(relay, listener, subprotocols=["one", "two"])
        assert ("one", "one") == (sender.subprotocol, receiver.subprotocol)
        await asyncio.gather(sender.close(), receiver.close())


async def test_a_refusal_reaches_the_sender(relay: LocalRelay) -> None:
    """The listener's status and text are the sender's error."""
    async with listening(relay) as listener:
        connecting = asyncio.ensure_future(connect(relay.endpoint, relay.sender, tls=relay.tls))
        await (await next_offer(listener)).reject(421, "this agent does not own port 5679 & never did")
        with pytest.raises(Rejected) as caught:
            await connecting
    assert (421, "this agent does not own port 5679 & never did") == (caught.value.status, caught.value.reason)


async def test_accepting_too_late_is_an_error_of_its_own(relay: LocalRelay) -> None:
    """A sender that has gone cannot be accepted; the listener gets an error and continues."""
    async with listening(relay) as listener:
        connecting = asyncio.ensure_future(connect(relay.endpoint, relay.sender, tls=relay.tls))
        offer = await next_offer(listener)
        connecting.cancel()
        await asyncio.wait({connecting})
        with pytest.raises(ConnectionLost, match="disconnected before"):
            while True:  # the relay may need a moment to see that the sender has gone
                late = await offer.accept()
                late.abort()
        sender, receiver = await pair(relay, listener)
        await asyncio.gather(sender.close(), receiver.close())


@pytest.mark.parametrize("role", ["sender", "listener"])
async def test_a_wrong_key_is_unauthorized(relay: LocalRelay, role: str) -> None:
    """A wrong key ends in one sentence, for a listener after one fresh token."""
    wrong = SasKeyCredential("send" if role == "sender" else "listen", secrets.new_key())
    with pytest.raises(Unauthorized, match="refused the credentials for 'myhc'.*hint"):
        if role == "sender":
            await connect(relay.endpoint, wrong, tls=relay.tls)
        else:
            async with HybridConnectionListener(relay.endpoint, wrong, tls=relay.tls) as listener:
                await next_offer(listener)


async def test_the_other_sides_right_is_not_enough(relay: LocalRelay) -> None:
    """A Listen key cannot send."""
    with pytest.raises(Unauthorized, match="Send right"):
        await connect(relay.endpoint, relay.listener, tls=relay.tls)


async def test_an_expired_token_is_explained(relay: LocalRelay) -> None:
    """An expired token's error speaks of expiry and the clock."""
    text = mint(relay.endpoint.audience, key_name="send", key=relay.send_key, expires_at=int(time.time()) - 3600)
    with pytest.raises(Unauthorized, match="expired.*clock"):
        await connect(relay.endpoint, SasTokenCredential(text), tls=relay.tls)


async def test_an_unknown_hybrid_connection(relay: LocalRelay) -> None:
    """A typing error in the name is distinguished from an absent job."""
    with pytest.raises(HybridConnectionNotFound, match="no hybrid connection 'typo'"):
        await connect(Endpoint("localhost", relay.server.port, "typo"), relay.sender, tls=relay.tls)


async def test_an_unknown_hybrid_connection_ends_a_listener(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener gives a new hybrid connection time to appear, and then ends with the error."""
    monkeypatch.setattr(listener_rules, "NOT_FOUND_GRACE", 0.5)
    typo = Endpoint("localhost", relay.server.port, "typo")
    with pytest.raises(HybridConnectionNotFound):
        async with HybridConnectionListener(typo, relay.listener, tls=relay.tls) as listener:
            await next_offer(listener)


async def test_nobody_listens(relay: LocalRelay) -> None:
    """Without a listener, the sender's error advises to start the job."""
    with pytest.raises(NoListener, match="no agent is listening on 'myhc'.*--is-debug true"):
        await connect(relay.endpoint, relay.sender, tls=relay.tls)


async def test_a_listener_that_does_not_answer(tls_directory: Path) -> None:
    """A listener that neither accepts nor rejects costs the sender the relay's time limit, and no more."""
    async with local_relay(tls_directory, limits=Limits(accept_timeout=0.2)) as relay, listening(relay):
        with pytest.raises(Rejected, match="did not answer") as caught:
            await connect(relay.endpoint, relay.sender, tls=relay.tls)
    assert caught.value.status == 408


async def test_one_listener_too_many_ends_with_an_error(tls_directory: Path) -> None:
    """The listener beyond the limit ends with an error, and the others stay."""
    async with local_relay(tls_directory, limits=Limits(max_listeners=1)) as relay, listening(relay) as first:
        with pytest.raises(TooManyListeners, match="as many listeners as the relay allows"):
            async with HybridConnectionListener(relay.endpoint, relay.listener, tls=relay.tls) as second:
                await next_offer(second)
        assert ListenerState.LISTENING is first.state


async def test_an_untrusted_certificate(relay: LocalRelay) -> None:
    """Without the relay's CA nothing is sent, and the hint names the file to give."""
    with pytest.raises(UntrustedCertificate, match="not trusted.*RELAY_CA_FILE"):
        await connect(relay.endpoint, relay.sender, tls=client_tls(environ={}))


async def test_a_relay_that_is_down(tls_directory: Path) -> None:
    """A port where nothing listens is a relay that cannot be reached."""
    async with local_relay(tls_directory) as relay:
        pass
    with pytest.raises(RelayUnreachable, match="cannot connect to localhost:[0-9]+: connection refused"):
        await connect(relay.endpoint, relay.sender, tls=relay.tls)


async def test_a_listener_survives_a_restart_of_the_relay(relay: LocalRelay) -> None:
    """The listener dials until the relay is back, and is found again."""
    async with listening(relay) as listener:
        await relay.server.stop()
        await relay.server.start()
        await until_found(relay, listener)


async def test_a_listener_survives_its_recycling(relay: LocalRelay) -> None:
    """A close with 1011, as Azure sends every 24 hours, costs nothing: relayed connections stay, new ones work."""
    async with listening(relay) as listener:
        sender, receiver = await pair(relay, listener)
        recycle_listeners(relay.server)
        await until_found(relay, listener)
        await sender.send("still here")
        assert await receiver.receive() == "still here"
        await asyncio.gather(sender.close(), receiver.close())


async def test_a_message_that_is_too_long(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the listener itself closes its control channel, the error names what the relay sent."""
    monkeypatch.setattr("relay_core.net.hybrid.listener.MAX_CONTROL_BYTES", 100)
    errors: asyncio.Queue[Exception] = asyncio.Queue()

    def note(_state: ListenerState, error: Exception | None) -> None:
        if error is not None:
            errors.put_nowait(error)

    async with HybridConnectionListener(relay.endpoint, relay.listener, tls=relay.tls, on_state=note) as listener:
        meeting = asyncio.ensure_future(until_met(relay, listener))
        error = await asyncio.wait_for(errors.get(), DEADLINE)
        monkeypatch.undo()
        await asyncio.gather(*(websocket.close() for websocket in await meeting))
    assert "the relay violated the protocol or a limit: a message is longer than 100 bytes" == str(error)


QUOTA = b"HTTP/1.1 403 MaximumListenersPerEndpoint quota was exceeded. TrackingId:1\r\nContent-Length: 0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
PORTAL = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nlogin"


@pytest.mark.parametrize(
    ("trusted", "answer", "error", "prompt"),
    [
        pytest.param(False, b"", UntrustedCertificate, True, id="inspecting proxy"),
        pytest.param(True, b"SSH-2.0-OpenSSH_9\r\n", ProtocolError, True, id="no HTTP"),
        pytest.param(True, PORTAL, ProtocolError, True, id="login page"),
        pytest.param(True, QUOTA, TooManyListeners, False, id="quota"),
        pytest.param(True, NOT_FOUND, HybridConnectionNotFound, False, id="404"),
        pytest.param(True, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", RelayUnreachable, False, id="5xx"),
    ],
)
async def test_a_listener_outlasts_whatever_answers_for_the_relay(
    relay: LocalRelay,
    tls_directory: Path,
    tmp_path: Path,
    trusted: bool,
    answer: bytes,
    error: type[RelayDebugError],
    prompt: bool,
) -> None:
    """Portals, inspecting proxies and quotas interrupt listening only for as long as they last, and no rendezvous.

    While a listener is needed, only the relay's own answers delay its next attempt.
    """
    failures: asyncio.Queue[Exception] = asyncio.Queue()

    def note(state: ListenerState, failure: Exception | None) -> None:
        if failure is not None:
            failures.put_nowait(failure)

    async with (
        behind_a_switch(relay) as (endpoint, switch),
        impostor(tls_directory if trusted else tmp_path, answer) as elsewhere,
        HybridConnectionListener(endpoint, relay.listener, tls=relay.tls, on_state=note) as listener,
    ):
        sender, receiver = await until_met(relay, listener)
        switch(elsewhere)
        recycle_listeners(relay.server)
        while not isinstance(failure := await asyncio.wait_for(failures.get(), DEADLINE), error):
            pass
        assert prompt is failure.allows_prompt_retry
        await sender.send("still here")
        assert "still here" == await receiver.receive()
        switch(relay.server.port)
        await until_found(relay, listener)
        await asyncio.gather(sender.close(), receiver.close())


class BrokenCredential(SasKeyCredential):
    """A credential with a fault in its code."""

    async def token(self, endpoint: Endpoint) -> Token:
        raise KeyError(secrets.new_key())


async def test_an_unexpected_error_ends_a_listener(relay: LocalRelay) -> None:
    """Whoever waits for offers gets an error with a hint, whatever went wrong, and not its text."""
    broken = BrokenCredential("listen", relay.listen_key)
    with pytest.raises(RelayDebugError) as caught:
        async with HybridConnectionListener(relay.endpoint, broken, tls=relay.tls) as listener:
            await asyncio.wait_for(next_offer(listener), DEADLINE)
    assert "listening on 'myhc' failed: unexpected KeyError" == caught.value.sentence
    assert caught.value.hint


async def test_a_listener_takes_the_place_of_its_own_dead_channel(tls_directory: Path) -> None:
    """Where the limit is reached by an agent's own forgotten connection, that agent can listen again."""
    async with (
        local_relay(tls_directory, limits=Limits(max_listeners=1)) as relay,
        listening(relay) as forgotten,
        listening(relay, listener_id=forgotten.listener_id) as listener,
    ):
        await forgotten.close()
        sender, receiver = await until_met(relay, listener)
        await asyncio.gather(sender.close(), receiver.close())


async def test_tokens_are_renewed_before_they_expire(tls_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener whose token lives two seconds is still there after several of them, on the same connection."""
    monkeypatch.setattr(listener_rules, "MIN_RENEW_DELAY", 0.1)
    monkeypatch.setattr("relay_core.auth.sas_credentials.TOKEN_LIFETIME", 2)
    async with local_relay(tls_directory, limits=Limits(token_expiry_grace=0)) as relay:
        states: list[ListenerState] = []
        credential = SasKeyCredential("listen", relay.listen_key)
        up = asyncio.Event()

        def note(state: ListenerState, _error: object) -> None:
            states.append(state)
            up.set()

        async with HybridConnectionListener(relay.endpoint, credential, tls=relay.tls, on_state=note) as listener:
            await up.wait()
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                sender, receiver = await pair(relay, listener)
                await asyncio.gather(sender.close(), receiver.close())
        assert [ListenerState.LISTENING] == states


async def test_a_closed_listener_is_not_found_any_more(relay: LocalRelay) -> None:
    """A closed listener has left the relay, so that no sender waits for it."""
    async with listening(relay) as listener:
        pass
    assert ListenerState.ENDED is listener.state
    with pytest.raises(NoListener):
        await connect(relay.endpoint, relay.sender, tls=relay.tls)


async def test_an_abort_is_not_taken_for_an_end(relay: LocalRelay) -> None:
    """A sender that vanishes is a lost connection, with code 1006, at the listener."""
    async with listening(relay) as listener:
        sender, receiver = await pair(relay, listener)
        sender.abort()
        with pytest.raises(ConnectionLost) as caught:
            await receiver.receive()
    assert caught.value.code == 1006


async def until_found(relay: LocalRelay, listener: HybridConnectionListener) -> None:
    """Connect until the relay finds the listener again."""
    sender, receiver = await until_met(relay, listener)
    await asyncio.gather(sender.close(), receiver.close())


async def until_met(relay: LocalRelay, listener: HybridConnectionListener) -> tuple[WebSocket, WebSocket]:
    """Connect until the relay finds the listener, and return both ends."""
    async with contextlib.AsyncExitStack() as stack:
        accepting = asyncio.ensure_future(next_offer(listener))
        stack.callback(accepting.cancel)
        while True:
            try:
                connecting = asyncio.ensure_future(connect(relay.endpoint, relay.sender, tls=relay.tls))
                await asyncio.wait({connecting, accepting}, return_when=asyncio.FIRST_COMPLETED)
                if accepting.done():
                    receiver = await accepting.result().accept()
                    return await connecting, receiver
                await connecting
            except (NoListener, RelayUnreachable):
                await asyncio.sleep(0.02)
