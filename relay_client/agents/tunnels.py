"""The client's tunnels: one to each agent on the hybrid connection, found when a port asks for them.

This file makes sessions and opens streams. Which agents are dialled is up to `discovery`, when to look for them to
`seeking`, whose a port is to `roster`, and what the user is told to `bulletin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import re
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

from relay_client.agents.discovery import Discovery
from relay_client.agents.event_log import Bulletin
from relay_client.agents.events import describe_agent
from relay_client.agents.new_role import retry_while_role_is_new
from relay_client.agents.roster import Claim, Destination, Roster
from relay_client.agents.search import Seeker
from relay_client.prefetch.layer import PrefetchCacheLayer
from relay_client.ui.text import printable
from relay_core.agent_api import VERSION
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.agent_api.metadata import ClientInfo, ClientStatus, StreamMetadata
from relay_core.agent_api.requests import Request
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.credential import Credential
from relay_core.layers.layer import Layer
from relay_core.net.hybrid.connector import connect
from relay_core.net.session.client import ClientTunnel, LinkStatus
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.secure_channel import TunnelIdentity
from relay_core.net.session.stream import SessionStream
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.limits import PROBE_TIMEOUT, Settings
from relay_core.tunnel.outcomes import ResetCode, Role

__all__ = ["CLIENT_GRACE", "StreamHandler", "Tunnels"]

CLIENT_GRACE = 3 * 3600.0
"""Seconds that a session is kept while its agent cannot be reached: a lunch, a flight, a long meeting."""
_AGENT_ID = re.compile(r"[0-9A-Za-z-]{1,64}", re.ASCII)

logger = logging.getLogger(__name__)

StreamHandler = Callable[[SessionDriver, SessionStream, StreamOpened], None]
"""Takes a stream that an agent has opened; must accept or refuse."""


class Tunnels:
    """All tunnels of this client; an async context manager that says goodbye at its end.

    Args:
        endpoint: The hybrid connection.
        credential: Must carry the Send right.
        tls: Decides about trust in the relay.
        tunnel_key: 32 bytes shared with the agents, or None for tunnels in the clear.
        settings: Limits and timers of the tunnels.
        ask_ahead: Whether agents are to ask debuggers what an editor is going to ask; see `relay_core.dap.prefetch`.
        alarm: Called when somebody should come now, e.g. because a process is held at an exception.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        tls: ssl.SSLContext,
        *,
        tunnel_key: bytes | None = None,
        settings: Settings | None = None,
        ask_ahead: bool = True,
        alarm: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._credential = credential
        self._tls = tls
        self._identity = TunnelIdentity(Role.CLIENT, tunnel_key) if tunnel_key is not None else None
        self._settings = settings or Settings(grace=CLIENT_GRACE)
        self._ask_ahead = ask_ahead
        self._client_id = str(uuid.uuid4())
        self._tunnels: dict[AgentId, ClientTunnel] = {}
        self._tasks = TaskSet()
        self._bulletin = Bulletin(alarm)
        self._discovery = Discovery(
            self._connect, self._begin, lambda: self._tunnels, client_id=self._client_id, path=endpoint.path
        )
        self.seeker = Seeker(self._discovery, self._tasks)
        self._reported: dict[AgentId, ClientStatus] = {}
        """What each agent knows of its conflicts."""
        self._handlers: dict[int, StreamHandler] = {}
        self._closing = False

    def __repr__(self) -> str:
        return f"<Tunnels {self._endpoint} agents={len(self._tunnels)}>"

    async def __aenter__(self) -> Tunnels:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._closing = True
        await asyncio.gather(*(tunnel.close("the client has ended") for tunnel in list(self._tunnels.values())))
        await self._tasks.cancel_all()

    # Streams:

    async def open(self, destination: int | Destination) -> SessionStream:
        """Return a stream to what serves a port; with a tunnel in place that takes no time.

        Raises:
            NoListener: no agent is there, or none that serves this port; later there may be one.
            RelayDebugError: any other reason.
        """
        wanted = destination if isinstance(destination, Destination) else Destination(destination)
        tunnel = await self._tunnel_to(wanted)
        return tunnel.driver.open(wanted.port, StreamMetadata(_user()).encode())

    async def open_for(self, destination: Destination) -> tuple[SessionStream, list[Layer]]:
        """Return a stream as `open` does for a local program that may be an editor, and the layers to carry it through.

        Raises:
            As `open`.
        """
        tunnel = await self._tunnel_to(destination)
        prefetch = not destination.is_forward and self._prefetches_with(tunnel)
        stream = tunnel.driver.open(destination.port, StreamMetadata(_user(), prefetch).encode())
        return stream, [PrefetchCacheLayer()] if prefetch else []

    def open_request(self, agent_id: AgentId, request: Request) -> SessionStream:
        """Return a stream for a request to one agent.

        Raises:
            ConnectionLost: the agent cannot be reached now.
        """
        tunnel = self._tunnels.get(agent_id)
        if tunnel is None or not tunnel.usable:
            raise ConnectionLost("there is no connection to the agent at the moment")
        return tunnel.driver.open(request.encode(), StreamMetadata(_user(), self._prefetches_with(tunnel)).encode())

    def _prefetches_with(self, tunnel: ClientTunnel) -> bool:
        """True if both peers support prefetching."""
        return self._ask_ahead and AgentInfo.parse(tunnel.agent_info).prefetch

    @contextlib.contextmanager
    def accepting(self, port: int, handler: StreamHandler) -> Iterator[None]:
        """Let the agent that serves `port` open streams for it towards this client, for a block."""
        self._handlers[port] = handler
        try:
            yield
        finally:
            del self._handlers[port]

    async def _tunnel_to(self, wanted: Destination) -> ClientTunnel:
        try:
            agent_id = await self.seeker.seek(lambda: self.server_of(wanted))
        except NoListener as error:
            raise self.why_not(wanted, error) from None
        return self._tunnels[agent_id]

    # Agents:

    @property
    def roster(self) -> Roster:
        """Which agents there are, and what they serve."""
        return self._bulletin.roster

    async def discover(self) -> None:
        """Look for agents until there is one.

        Raises:
            NoListener: there is none.
            RelayDebugError: the relay, the credentials or the tunnel key are unusable.
        """
        await self.seeker.seek(lambda: next(iter(self._tunnels), None))

    async def discover_once_permitted(self) -> None:
        """Look as `discover`, and repeat it while the relay refuses an identity whose role may be new."""
        await retry_while_role_is_new(self.discover, self._credential.role_grace)

    async def discover_all(self) -> None:
        """Look for agents until there are no more; raises as `discover`."""
        try:
            await self.seeker.seek(lambda: None)
        except NoListener:
            if not self._tunnels:
                raise

    def keep_looking(self) -> None:
        """From now on, look for all agents, and say now and then what is held."""
        self._tasks.spawn(self.seeker.keep_looking(), name="look for agents now and then")
        self._tasks.spawn(self._bulletin.keep_reminding(), name="remind of what is held")

    def server_of(self, destination: Destination) -> AgentId | None:
        """Return the id of the agent that a destination leads to, if it can be reached now."""
        agent_id = self.roster.route(destination, time.time())
        tunnel = self._tunnels.get(agent_id) if agent_id is not None else None
        return agent_id if tunnel is not None and tunnel.usable else None

    def reachable_targets(self) -> list[Claim]:
        """Return the targets that could be attached to now, by port."""
        claims = self.roster.targets(time.time())
        return [claim for claim in claims if self.server_of(Destination(claim.target.port)) == claim.agent.id]

    def hurry(self) -> None:
        """Dial again now, wherever a tunnel is reconnecting."""
        for tunnel in self._tunnels.values():
            tunnel.hurry()

    def describe(self) -> str:
        """Return what is connected, in one line."""
        sealed = "encrypted end to end" if self._identity else "NOT encrypted end to end"
        now = time.time()
        return "; ".join([*(describe_agent(agent, now) for agent in self.roster), sealed])

    def why_not(self, wanted: Destination, error: RelayDebugError) -> RelayDebugError:
        """Return why a destination cannot be reached, given why looking for it ended."""
        if not isinstance(error, NoListener):
            return error
        tunnel = self._tunnels.get(agent_id := self.roster.route(wanted, time.time()) or AgentId(""))
        if tunnel is not None:
            since = time.strftime("%H:%M:%S", time.localtime(tunnel.status.since))
            return NoListener(
                f"the tunnel to {self._bulletin.name(agent_id)} is {tunnel.status.state.value} since {since}"
                f"{': ' if tunnel.status.reason else ''}{tunnel.status.reason}",
                hint="it comes back by itself when the network does",
            )
        if not self._tunnels:
            return error
        hint = "check --ports against the job's --debug-port"
        if wanted.is_forward:
            hint = "the job or relay-agent must offer it as a forward"
        return NoListener(f"no agent on '{self._endpoint.path}' serves {wanted}; {self.describe()}", hint=hint)

    # Tunnels:

    async def _connect(self, headers: Mapping[str, str]) -> WebSocket:
        return await connect(self._endpoint, self._credential, headers=headers, tls=self._tls)

    async def _begin(self, websocket: WebSocket) -> bool:
        """Begin a session with whoever answers; False if that is an agent with whom there is one."""
        info = ClientInfo(self._client_id, _user()).encode()
        attached, transport = await ClientTunnel.begin(websocket, self._identity, settings=self._settings, info=info)
        agent_id = AgentInfo.parse(attached.session.peer.info).id
        if not _AGENT_ID.fullmatch(agent_id):
            agent_id = AgentId(attached.session.id.hex())
        if (known := self._tunnels.get(agent_id)) is not None:
            self._tasks.spawn(ClientTunnel.decline(attached, transport, "this client has one already"), name="decline")
            self._discovery.seen(agent_id)
            known.driver.probe(PROBE_TIMEOUT)  # the agent may have taken this one because the old one is lost
            known.hurry()
            return False

        def opened(stream: SessionStream, event: StreamOpened) -> None:
            self._opened(agent_id, tunnel.driver, stream, event)

        tunnel = self._tunnels[agent_id] = ClientTunnel(
            attached,
            transport,
            dial=lambda: self._discovery.find_again(agent_id),
            identity=self._identity,
            settings=self._settings,
            on_change=lambda status: self._link_changed(agent_id, status),
            on_info=lambda: self._announced(agent_id),
            on_open=opened,
        )
        self._announced(agent_id)
        self._check_version(agent_id)
        self._tasks.spawn(self._keep(agent_id, tunnel), name=f"tunnel to {self._bulletin.name(agent_id)}")
        return True

    async def _keep(self, agent_id: AgentId, tunnel: ClientTunnel) -> None:
        try:
            await tunnel.run()
        finally:
            del self._tunnels[agent_id]
            self._reported.pop(agent_id, None)
            self._discovery.seen(agent_id)
            self.roster.remove(agent_id)
            self._changed()

    def _announced(self, agent_id: AgentId) -> None:
        before, tunnel = self.roster.agent(agent_id), self._tunnels[agent_id]
        info = AgentInfo.parse(tunnel.agent_info, agent_id=agent_id, clean=printable)
        if before is not None and before.generation != info.generation:
            # The relay that ended the agent's control channel may be about to end the transports as well.
            tunnel.replace_transport()
        self._bulletin.announced(info)
        self._changed()

    def _check_version(self, agent_id: AgentId) -> None:
        info = self.roster.agent(agent_id)
        if info is not None and info.version > VERSION:
            logger.info("%s is newer than this client, which may not show all that it announces", info.name)

    def _link_changed(self, agent_id: AgentId, status: LinkStatus) -> None:
        if self._closing:
            return  # what happens to the tunnels now is this client's own doing
        self._bulletin.link_changed(agent_id, status)
        self._changed()

    def _changed(self) -> None:
        """Agents or targets have changed: tell each agent about its conflicts, and those who wait."""
        conflicts = self._bulletin.conflicts()
        for agent_id, tunnel in self._tunnels.items():
            mine = ClientStatus(tuple(found.report() for found in conflicts if found.concerns(agent_id)))
            if mine != self._reported.get(agent_id, ClientStatus()):
                self._reported[agent_id] = mine
                tunnel.driver.send_status(mine.encode())
        self.seeker.announce_change()

    def _opened(self, agent_id: AgentId, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        """An agent has opened a stream: only for a port that somebody here accepts, and from its agent."""
        handler = self._handlers.get(event.target) if isinstance(event.target, int) else None
        if handler is None or self.server_of(Destination(int(event.target))) != agent_id:
            driver.refuse(stream, ResetCode.NOT_ALLOWED, f"this client does not ask for {event.target}")
        else:
            handler(driver, stream, event)


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no entry for this uid, as in containers
        return f"somebody@{socket.gethostname()}"
