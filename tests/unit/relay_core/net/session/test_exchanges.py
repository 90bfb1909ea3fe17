"""Facts about requests in messages: each is executed once, whatever the transports lose."""

import asyncio
import random

import pytest

from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.net.session.exchanges import KEPT, MAX_BODY, Exchanges, Respond
from tests.support.deadline import DEADLINE


class Link:
    """A client and an agent, and a transport between them that loses messages."""

    def __init__(self, seed: int = 0, *, losses: float = 0.0) -> None:
        self.executed: list[bytes] = []
        self.open: list[tuple[bytes, Respond]] = []
        """Requests that the agent is executing."""
        self._random = random.Random(seed)
        self._losses = losses
        self.client = Exchanges(self._up, None)
        self.agent = Exchanges(self._down, self._requested)

    def respond(self) -> None:
        """Respond to all requests that are being executed."""
        for body, respond in self.open:
            respond(body[::-1])
        self.open.clear()

    def _requested(self, body: bytes, respond: Respond) -> None:
        self.executed.append(body)
        self.open.append((body, respond))

    def _up(self, message: bytes) -> None:
        if self._random.random() >= self._losses:
            self.agent.received(message)

    def _down(self, message: bytes) -> None:
        if self._random.random() >= self._losses:
            self.client.received(message)


async def until_executed(link: Link, *bodies: bytes) -> list[asyncio.Future[bytes]]:
    """Return requests that the agent has received."""
    requests = [asyncio.ensure_future(link.client.request(body)) for body in bodies]
    await asyncio.sleep(0)
    return requests


async def test_responses_reach_their_requests() -> None:
    """Responses may arrive in another order than the requests."""
    link = Link()
    requests = await until_executed(link, b"abc", b"xyz", b"")
    link.open.reverse()
    link.respond()
    assert [b"cba", b"zyx", b""] == await asyncio.gather(*requests)


@pytest.mark.parametrize("seed", range(20))
async def test_every_request_is_executed_once(seed: int) -> None:
    """Requests and responses that transports lose are sent again on later ones; none is executed twice."""
    link = Link(seed, losses=0.6)
    bodies = [f"{number:02}".encode() for number in range(20)]
    requests = await until_executed(link, *bodies)
    for _ in range(200):
        link.respond()
        link.client.transport_attached()
        await asyncio.sleep(0)
    assert [body[::-1] for body in bodies] == await asyncio.wait_for(asyncio.gather(*requests), DEADLINE)
    assert sorted(bodies) == sorted(link.executed)


async def test_a_cancelled_request_is_not_sent_again() -> None:
    """Its late response is ignored."""
    link = Link()
    (request,) = await until_executed(link, b"a")
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    link.client.transport_attached()
    link.respond()
    assert [b"a"] == link.executed


async def test_limits() -> None:
    """A long request is refused; an agent remembers its last responses and executes a limited number at once."""
    link = Link()
    with pytest.raises(ProtocolError):
        await link.client.request(bytes(MAX_BODY + 1))
    requests = await until_executed(link, *(b"x" for _ in range(KEPT + 10)))
    assert KEPT == len(link.executed)
    link.respond()
    link.client.transport_attached()
    link.respond()
    assert [b"x"] * len(requests) == await asyncio.gather(*requests)
    assert KEPT == len(link.agent._responses)


async def test_the_end_of_the_session() -> None:
    """Requests without a response fail, and so do later ones."""
    link = Link()
    (request,) = await until_executed(link, b"a")
    link.client.break_off(ConnectionLost("the session is over"))
    for each in (request, link.client.request(b"b")):
        with pytest.raises(ConnectionLost, match="the session is over"):
            await each


async def test_messages_that_are_no_requests() -> None:
    """Short messages, unknown responses, and requests to a side that accepts none are ignored."""
    link = Link()
    for message in (b"", b"\0", b"\x80\1response", b"\0\1request"):
        link.client.received(message)
    assert "<Exchanges pending=[] responses=0>" == repr(link.client)
