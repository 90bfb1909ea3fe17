"""The client's tunnels: one to each agent on the hybrid connection, found when a port asks for them.

Two agents are told apart by the relay (`Microsoft-Relay-DisallowedListeners` names those that are known already) or,
where the relay ignores that, by the agents themselves, which refuse a client that is connected to them.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import socket
import ssl
import time
import uuid
from collections.abc import Mapping

from relay_core.errors import NoListener, Rejected
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER, Endpoint
from relay_core.hyco.credential import Credential
from relay_core.net.connector import connect
from relay_core.net.secure_channel import TunnelIdentity
from relay_core.net.stream import ByteStream
from relay_core.net.tasks import TaskSet
from relay_core.net.tunnel_client import ClientTunnel, LinkState, LinkStatus
from relay_core.net.tunnel_headers import MISDIRECTED, TUNNEL_HEADER, TunnelHeader
from relay_core.net.websocket import WebSocket
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.outcomes import Role

__all__ = ["CLIENT_GRACE", "Tunnels"]

CLIENT_GRACE = 3 * 3600.0
"""Seconds that a session is kept while its agent cannot be reached: a lunch, a flight, a long meeting."""
MAX_AGENTS = 25
"""Listeners on one hybrid connection, Azure's limit."""
MISDIRECTED_ATTEMPTS = 30
"""Connects to make where the relay picks agents at random and ignores which are known already."""

logger = logging.getLogger(__name__)


class Tunnels:
    """All tunnels of this client; an async context manager that says goodbye at its end.

    Args:
        endpoint: The hybrid connection.
        credential: Must carry the Send right.
        tls: Decides about trust in the relay.
        tunnel_key: 32 bytes shared with the agents, or None for tunnels in the clear.
        settings: Limits and timers of the tunnels.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        tls: ssl.SSLContext,
        *,
        tunnel_key: bytes | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._credential = credential
        self._tls = tls
        self._identity = TunnelIdentity(Role.CLIENT, tunnel_key) if tunnel_key is not None else None
        self._settings = settings or Settings(grace=CLIENT_GRACE)
        self._client_id = str(uuid.uuid4())
        self._tunnels: dict[str, ClientTunnel] = {}
        self._tasks = TaskSet()
        self._discovering = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Tunnels {self._endpoint} agents={len(self._tunnels)}>"

    async def __aenter__(self) -> Tunnels:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await asyncio.gather(*(tunnel.close("the client has ended") for tunnel in list(self._tunnels.values())))
        await self._tasks.cancel_all()

    async def open(self, port: int) -> ByteStream:
        """Return a stream to what serves logical port `port`; with a tunnel in place that takes no time.

        Raises:
            NoListener: no agent is there, or none that serves this port; later there may be one.
            RelayDebugError: any other reason.
        """
        tunnel = self._usable(port)
        if tunnel is None:
            async with self._discovering:
                tunnel = self._usable(port) or await self._discover(port)
        return tunnel.driver.open(port, {"user": _user()})

    async def discover(self) -> None:
        """Find one more agent.

        Raises:
            NoListener: there is none.
            RelayDebugError: the relay, the credentials or the tunnel key are unusable.
        """
        websocket = await self._dial_new()
        info = {"client": self._client_id, "user": _user()}
        attached, transport = await ClientTunnel.begin(websocket, self._identity, settings=self._settings, info=info)
        agent = str(attached.session.peer.info.get("agent", attached.session.id.hex()))
        name = _name(attached.session.peer.info)
        tunnel = ClientTunnel(
            attached,
            transport,
            dial=lambda: self._dial_again(agent),
            identity=self._identity,
            settings=self._settings,
            on_change=lambda status: self._show(name, status),
        )
        self._tunnels[agent] = tunnel
        self._tasks.spawn(self._keep(agent, tunnel), name=f"tunnel to {name}")

    def hurry(self) -> None:
        """Dial again now, wherever a tunnel is reconnecting."""
        for tunnel in self._tunnels.values():
            tunnel.hurry()

    def describe(self) -> str:
        """Return what is connected, in one line."""
        sealed = "encrypted end to end" if self._identity else "NOT encrypted end to end"
        known = [f"{_name(t.agent_info)} serves {_ports_text(t)}" for t in self._tunnels.values()]
        return f"{'; '.join(known)}; {sealed}" if known else sealed

    async def _discover(self, port: int) -> ClientTunnel:
        """Find agents until one serves `port`."""
        for _ in range(MAX_AGENTS):
            try:
                await self.discover()
            except NoListener as error:
                raise self._nobody_serves(port, error) from None
            if tunnel := self._usable(port):
                return tunnel
        raise self._nobody_serves(port, NoListener(f"no agent on '{self._endpoint.path}' serves port {port}"))

    def _nobody_serves(self, port: int, error: NoListener) -> NoListener:
        for tunnel in self._tunnels.values():
            if port in _ports(tunnel):
                since = time.strftime("%H:%M:%S", time.localtime(tunnel.status.since))
                return NoListener(
                    f"the tunnel to {_name(tunnel.agent_info)} is {tunnel.status.state.value} since {since}"
                    f"{': ' if tunnel.status.reason else ''}{tunnel.status.reason}",
                    hint="it comes back by itself when the network does",
                )
        if not self._tunnels:
            return error
        return NoListener(
            f"no agent on '{self._endpoint.path}' serves port {port}; {self.describe()}",
            hint="check --ports against the job's --debug-port",
        )

    def _usable(self, port: int) -> ClientTunnel | None:
        return next((t for t in self._tunnels.values() if t.usable and port in _ports(t)), None)

    async def _keep(self, agent: str, tunnel: ClientTunnel) -> None:
        try:
            await tunnel.run()
        finally:
            self._tunnels.pop(agent, None)

    async def _dial_new(self) -> WebSocket:
        headers = {TUNNEL_HEADER: TunnelHeader(self._client_id).encode()}
        if self._tunnels:
            headers[DISALLOWED_LISTENERS_HEADER] = ",".join(self._tunnels)
        for _ in range(MISDIRECTED_ATTEMPTS if self._tunnels else 1):
            try:
                return await self._connect(headers)
            except Rejected as rejected:
                if rejected.status != MISDIRECTED:
                    raise
        raise NoListener(f"every agent found on '{self._endpoint.path}' is connected already")

    async def _dial_again(self, agent: str) -> WebSocket:
        return await self._connect(
            {
                TUNNEL_HEADER: TunnelHeader(self._client_id, agent).encode(),
                ALLOWED_LISTENERS_HEADER: agent,
            }
        )

    async def _connect(self, headers: Mapping[str, str]) -> WebSocket:
        return await connect(self._endpoint, self._credential, headers=headers, tls=self._tls)

    def _show(self, name: str, status: LinkStatus) -> None:
        if status.state is LinkState.CONNECTED:
            round_trip = f", round trip {status.round_trip * 1000:.1f} ms" if status.round_trip is not None else ""
            logger.info("tunnel to %s: connected%s", name, round_trip)
        elif status.state is LinkState.OVER:
            logger.warning("tunnel to %s: lost: %s", name, status.reason)
        else:
            since = time.strftime("%H:%M:%S", time.localtime(status.since))
            logger.warning("tunnel to %s: %s since %s: %s", name, status.state.value, since, status.reason)


def _ports(tunnel: ClientTunnel) -> list[int]:
    targets = tunnel.agent_info.get("targets", [])
    if not isinstance(targets, list):
        return []
    return [target["port"] for target in targets if isinstance(target, dict) and isinstance(target.get("port"), int)]


def _ports_text(tunnel: ClientTunnel) -> str:
    return ", ".join(map(str, _ports(tunnel))) or "nothing"


def _name(info: Mapping[str, object]) -> str:
    """Return how people know an agent."""
    return f"{info.get('host', 'agent')}/{str(info.get('agent', ''))[:8]}"


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no entry for this uid, as in containers
        return f"somebody@{socket.gethostname()}"
