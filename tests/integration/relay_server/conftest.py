"""A relay per test, with certificates made once per session, and the gestures of the protocol in a line each."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from relay_core.hyco.sas import mint
from relay_server.config.model import HybridConnection, Limits, RelayConfig, Right, Rule, TlsSettings
from relay_server.server import RelayServer
from tests.support.network.raw_websocket import (
    Answer,
    RawWebSocket,
    Target,
    finish_websocket,
    open_websocket,
    refused,
    start_websocket,
)

KEYS = {name: f"key-of-{name}-{'x' * 20}" for name in ("agent", "client", "second", "root", "reader")}


@dataclass
class Accept:
    """An `accept` message as a listener got it."""

    address: str
    id: str
    connectHeaders: dict[str, str]  # noqa: N815 - the protocol's spelling
    remoteEndpoint: dict[str, Any]  # noqa: N815

    @property
    def target(self) -> str:
        """Path and query of the address."""
        url = urlsplit(self.address)
        return f"{url.path}?{url.query}"


@dataclass
class Relay:
    """A running relay and what a test does with it."""

    server: RelayServer
    stack: AsyncExitStack = field(repr=False)

    @property
    def target(self) -> Target:
        assert self.server.ca_file is not None
        return Target(self.server.port, self.server.ca_file)

    def token(
        self, rule: str, path: str = "hc", *, key: str | None = None, lifetime: float = 3600, **parts: str
    ) -> str:
        """Mint a token; `uri` replaces its audience."""
        uri = parts.get("uri", f"http://localhost/{path}")
        return mint(uri, key_name=rule, key=key or KEYS[rule], expires_at=int(time.time() + lifetime))

    def auth(self, rule: str, path: str = "hc", **options: Any) -> list[tuple[str, str]]:
        return [("ServiceBusAuthorization", self.token(rule, path, **options))]

    async def keep(self, websocket: RawWebSocket) -> RawWebSocket:
        """Close a websocket when the test ends."""
        return await self.stack.enter_async_context(websocket)

    async def listen(
        self, path: str = "hc", *, listener_id: str | None = None, headers=None, **options
    ) -> RawWebSocket:
        query = f"sb-hc-action=listen&sb-hc-id={listener_id or uuid.uuid4()}"
        headers = self.auth("agent", path) if headers is None else headers
        return await self.keep(await open_websocket(self.target, f"/$hc/{path}?{query}", headers, **options))

    async def start_connect(
        self, path: str = "hc", *, query: str = "", headers=None, extra=(), **options
    ) -> RawWebSocket:
        """Send a connect request; its answer is held back until a listener accepts."""
        target = f"/$hc/{path}?{query + '&' if query else ''}sb-hc-action=connect"
        headers = self.auth("client", path.split("/", maxsplit=1)[0]) if headers is None else headers
        return await self.keep(await start_websocket(self.target, target, [*headers, *extra], **options))

    async def offer(self, control: RawWebSocket) -> Accept:
        """Return the next `accept` message of a listener."""
        _, text = await control.read_message()
        message = json.loads(text)
        assert list(message) == ["accept"]
        return Accept(**message["accept"])

    async def waiting_sender(self) -> tuple[RawWebSocket, Accept]:
        """Return a sender whose request a listener has received and not answered, and that offer."""
        control = await self.listen()
        sender = await self.start_connect()
        return sender, await self.offer(control)

    async def accept(self, offer: Accept, headers=(), **options) -> RawWebSocket:
        return await self.keep(await open_websocket(self.target, offer.target, headers, **options))

    async def refused_accept(self, offer: Accept, suffix: str = "") -> Answer:
        return await refused(self.target, offer.target + suffix)

    async def pair(self, control: RawWebSocket | None = None, *, sender=None, listener=None) -> tuple[Any, Any]:
        """Return the two ends of a relayed connection: sender, listener."""
        control = control or await self.listen()
        dialling = await self.start_connect(**(sender or {}))
        accepted = await self.accept(await self.offer(control), **(listener or {}))
        return await finish_websocket(dialling), accepted


@pytest.fixture(scope="session")
def certificate_directory(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


PATIENT = Limits(
    accept_timeout=3600.0, http_timeout=3600.0, close_timeout=3600.0, ping_interval=3600.0, drain_timeout=0.5
)
"""A test that does not set a limit of its own must not pass because one of these has ended a wait."""


@pytest.fixture
def config(certificate_directory) -> RelayConfig:
    """One hybrid connection of each kind, and rules of each kind."""
    agent = Rule("agent", frozenset({Right.LISTEN}), KEYS["agent"], secondary_key=KEYS["second"])
    client = Rule("client", frozenset({Right.SEND}), KEYS["client"])
    return RelayConfig(
        tls=TlsSettings(directory=certificate_directory),
        hybrid_connections=(
            HybridConnection("hc", rules=(agent, client)),
            HybridConnection("open", requires_client_authorization=False, rules=(agent,)),
            HybridConnection("hc/deeper", rules=(agent, client)),
            HybridConnection("Mixed.Case", rules=(agent, client)),
        ),
        rules=(Rule("root", frozenset({Right.MANAGE}), KEYS["root"]),),
        aliases=("relay.test",),
        limits=PATIENT,
    )


@pytest.fixture
async def start_relay(config) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that starts a relay; keyword arguments change the configuration or its limits."""
    async with AsyncExitStack() as stack:

        async def start(
            *,
            limits: dict[str, Any] | None = None,
            make: Callable[[RelayConfig], RelayServer] = RelayServer,
            **changes: Any,
        ) -> Relay:
            changed = replace(config, limits=replace(config.limits, **(limits or {})), **changes)
            server = make(changed)
            await stack.enter_async_context(server)
            return Relay(server, await stack.enter_async_context(AsyncExitStack()))

        yield start


@pytest.fixture
async def relay(start_relay) -> Relay:
    return await start_relay()
