"""The client's tunnels: one to each agent on the hybrid connection or family.

The client searches for agents when a port needs one. This module begins sessions and opens streams; `discovery` decides
which agents are dialled, `search` decides when, `roster` maps ports to agents, and `event_log` logs changes.

What one tunnel shows about others, or about itself before it can notice:

    an agent is connected again             the relay works: all other tunnels dial at once, without their delays
    an announcement names predecessors      killed agents, whose sessions nobody can resume: they end, with the reason
    an announcement has a new generation    the agent's control channel has broken: its transport may be next, and is
                                            replaced while it works
    the last target has ended, then a loss  the container was stopped together with the job: the session ends
    an unexpected second session            the agent may have lost the old transport: it is probed

Without these rules, each case ends as well, but late: a killed agent looks like one without a network, for which a
session is kept three hours (`CLIENT_GRACE`), and an editor would show a job that no longer exists for as long. Only the
agent's successor knows better: it has the lock of its predecessor, with its id. A client cannot conclude it from the
404 of the relay, because an agent that has lost its network has no listener either.

Invariants: at most one tunnel for each agent id, and ids are the agent's own. `_begin` enters a tunnel without an
`await` after it has looked for one, so simultaneous probes that reach the same agent cannot both add one. The later one
is declined with a GOAWAY instead of being dropped, otherwise its session would occupy a place at the agent until its
grace period ends. Each agent in the roster has a tunnel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from relay_client.agents.discovery import Begun, FamilyDiscovery
from relay_client.agents.event_log import EventLog, LeadsTo, describe_agent
from relay_client.agents.roster import Claim, Destination, Roster, held_elsewhere
from relay_client.agents.search import AgentSearch
from relay_client.prefetch import ResponseCache
from relay_client.ranks.record import NOTHING_LOCAL, Local, Node, Target, node_record, target_record
from relay_client.ui.text import CHECK_PORTS, LISTING, format_ranks
from relay_client.user_directory import login_name
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientInfo, ClientStatus, StreamMetadata
from relay_core.agent_api.requests import Request, stream_name
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError
from relay_core.foreign import printable
from relay_core.hyco.address import Endpoint
from relay_core.hyco.backoff import AttemptBudget, Backoff, NewRoleGrace, refused_for_good, refused_for_now
from relay_core.hyco.sas import Credential
from relay_core.layers.layer import Layer
from relay_core.net.hybrid.connector import connect
from relay_core.net.session.client import ClientTunnel, LinkState, LinkStatus
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tasks import Paced, TaskSet
from relay_core.net.websocket.connection import WebSocket
from relay_core.records import encode
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.limits import PROBE_TIMEOUT, Settings
from relay_core.tunnel.outcomes import ResetCode, Role
from relay_core.value_parsers import format_ranges

logger = logging.getLogger(__name__)


# Errors for destinations that cannot be reached, with what is known about the agents.

SPAWNED = (
    "a worker that the job starts itself, for example with torch.multiprocessing.spawn, has a port only if it calls "
    "start_remote_debugging_from_args() after it has set RANK and WORLD_SIZE"
)


class NotForwarded(NoListener):
    """Agents are connected, but none of them forwards the port; the job must be started with `--debug-forward`."""

    retryable = False


def describe_agents(roster: Roster, now: float, *, is_encrypted: bool) -> str:
    """Return one line with the connected agents and whether the tunnels are encrypted end to end."""
    sealed = "encrypted end to end" if is_encrypted else "NOT encrypted end to end"
    return "; ".join([*(describe_agent(agent, now) for agent in roster), sealed])


RECONNECTING = "wait until the network is available; the tunnel then reconnects automatically"


def disconnected_error(agent: str, status: LinkStatus) -> NoListener:
    """Return the error for a destination whose agent is known, but whose tunnel is not connected."""
    since = time.strftime("%H:%M:%S", time.localtime(status.since))
    return NoListener(
        f"the tunnel to {agent} is {status.state.value} (since {since}){': ' if status.reason else ''}{status.reason}",
        hint=RECONNECTING,
    )


def no_agent_error(wanted: Destination, path: str, roster: Roster, agents: str) -> NoListener:
    """Return the error for a destination that none of the connected agents serves.

    Args:
        wanted: The destination.
        path: Name of the hybrid connection or family.
        roster: The agents.
        agents: Their description.
    """
    reason = f"no agent on '{path}' serves {wanted}"
    sentence = f"{reason}; {agents}"
    if not wanted.is_forward:
        hint = f"{CHECK_PORTS}; {SPAWNED}" if _has_no_launcher(roster) else CHECK_PORTS
        return NoListener(sentence, hint=hint, reason_to_wait=reason)
    nodes = {agent.node_rank for agent in roster}
    known = wanted.node_rank is None or wanted.node_rank in nodes
    hint = f"start the job with --debug-forward {wanted.port}, or use 'relay-agent serve --port {wanted.port}'"
    return (NotForwarded if known else NoListener)(sentence, hint=hint, reason_to_wait=reason)


def no_process_error(
    targets: Iterable[TargetInfo | Target], ranks: Collection[int], port: int | None = None
) -> NoListener:
    """Return the error for ranks, or for a logical port, that no process has."""
    known = {target.port: target.rank for target in targets}
    what, kind, registered = f"port {port}", "port", set(known)
    if port is None:
        what, kind, registered = format_ranks(ranks), "rank", {rank for rank in known.values() if rank is not None}
    hints = [f"use a registered {kind}: {format_ranges(sorted(registered))}" if registered else LISTING]
    hints += [f"{rank} is the port of rank {known[rank]}" for rank in ranks if known.get(rank) is not None]
    return NoListener(f"no process has {what}", hint="; ".join(hints))


def may_register(targets: Iterable[TargetInfo | Target], rank: int, port: int | None = None) -> bool:
    """Return whether a process with a rank, or with a logical port, may still register, to judge by the known jobs.

    A job of one process, or of an unknown size, may be the launcher of others.
    """
    ranked = [(target.port, target.rank, target.world or 1) for target in targets if target.rank is not None]
    if port is None and any(rank == other for other, _, _ in ranked):  # a port in place of a rank
        return False
    wanted = [(world, rank if port is None else port - other + own) for other, own, world in ranked]
    return not wanted or any(world == 1 or 0 <= number < world for world, number in wanted)


def _has_no_launcher(roster: Roster) -> bool:
    """Return whether every process has registered as the only rank of its job, as one that starts its ranks itself."""
    targets = [target for agent in roster for target in agent.targets]
    return bool(targets) and all(target.world in {None, 1} for target in targets)


CLIENT_GRACE = 3 * 3600.0
"""Seconds for which a session is kept while its agent is unreachable: long enough for a meeting or a short flight."""
ANNOUNCEMENT_INTERVAL, ANNOUNCEMENT_BURST = 0.1, 2.0
"""Seconds between announcements of one agent that are processed, and how long it may announce more before that."""

_AGENT_ID = re.compile(r"[0-9A-Za-z-]{1,64}", re.ASCII)


StreamHandler = Callable[[SessionDriver, SessionStream, StreamOpened], None]
"""Called with a stream that an agent has opened; accepts or refuses it."""


class Tunnels:
    """All tunnels of this client; an async context manager that closes the sessions on exit.

    Args:
        endpoint: The hybrid connection.
        credential: A credential that has the Send right.
        tls: The TLS settings that are used to verify the relay's certificate.
        tunnel_key: 32 bytes shared with the agents, or None for tunnels without end-to-end encryption.
        settings: Limits and timers of the tunnels.
        prefetch: Whether to prefetch debugger state at stops; see `relay_core.dap.prefetch`.
        alarm: Called when the user should act now, for example because a process is held at an exception.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        tls: ssl.SSLContext,
        *,
        tunnel_key: bytes | None = None,
        settings: Settings | None = None,
        prefetch: bool = True,
        alarm: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoint = endpoint
        """The hybrid connection."""
        self._credential = credential
        self._tls = tls
        self._identity = TunnelIdentity(Role.CLIENT, tunnel_key) if tunnel_key is not None else None
        self._settings = settings or Settings(grace=CLIENT_GRACE)
        self._prefetch = prefetch
        self._client_id = str(uuid.uuid4())
        self._tunnels: dict[AgentId, ClientTunnel] = {}
        self._budget = AttemptBudget()
        self._tasks = TaskSet()
        self._event_log = EventLog(alarm)
        self.roster = self._event_log.roster
        """The agents and what they serve."""
        self._discovery = FamilyDiscovery(
            endpoint,
            self._connect,
            self._begin,
            lambda: self._tunnels,
            client_id=self._client_id,
            missing=self.roster.missing_agents,
            on_missed=self._search_now,
            on_moved=lambda agent: self._tunnels[AgentId(agent)].hurry(),
        )
        self.search = AgentSearch(self._discovery, self._tasks)
        self._reported: dict[AgentId, ClientStatus] = {}
        """The last status sent to each agent."""
        self._handlers: dict[int, StreamHandler] = {}
        self._closing = False
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change to the agents, to what they serve, or to the tunnels."""
        self.nodes_here: Callable[[], tuple[Node, ...]] = self.nodes
        """Returns the records of all agents, with what this program knows about their targets."""
        self.leads_to: LeadsTo = lambda _target: False
        """Whether a port on this machine leads to a target, for hints in the log."""

    async def __aenter__(self) -> Tunnels:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._closing = True
        await asyncio.gather(*(tunnel.close("the client has stopped") for tunnel in list(self._tunnels.values())))
        await self._tasks.cancel_all()

    # Streams:

    async def open(self, destination: int | Destination) -> SessionStream:
        """Return a stream to a destination, without waiting if there already is a tunnel to its agent.

        Raises:
            NoListener: no agent was found, or none serves this port; a retry may succeed.
            RelayDebugError: the destination cannot be reached for any other reason.
        """
        wanted = destination if isinstance(destination, Destination) else Destination(destination)
        tunnel = self._tunnels[await self.wait_for(wanted)]
        return tunnel.driver.open(wanted.port, encode(StreamMetadata(user_name())))

    async def wait_for(self, wanted: Destination) -> AgentId:
        """Return the agent of a destination, once there is a tunnel to it; raise the same errors as `open`."""
        try:
            return await self.search.find(lambda: self.agent_for(wanted))
        except NoListener as error:
            raise self.unreachable_error(wanted, error) from None

    async def open_for(self, destination: Destination) -> tuple[SessionStream, list[Layer]]:
        """Return a stream for a local program that may be an editor, and the layers for its bytes; raise as `open`."""
        agent_id = await self.wait_for(destination)
        prefetch = not destination.is_forward and self._can_prefetch(agent_id)
        driver = self._tunnels[agent_id].driver
        stream = driver.open(destination.port, encode(StreamMetadata(user_name(), prefetch)))
        return stream, [ResponseCache()] if prefetch else []

    async def release(self, port: int) -> bool:
        """End the session of a client of this user that is not connected any more; return whether one held the target.

        Raises:
            RelayDebugError: as in `open`.
        """
        claim = self.roster.owner(port, time.time())
        if claim is None or claim.target.attachment is None or blocking_holder(claim.target) is not None:
            return False
        tunnel = self._tunnels[await self.wait_for(Destination(port))]
        tunnel.driver.open(port, encode(StreamMetadata(user_name(), is_release=True))).abort()
        return True

    def leads_to_debugpy(self, destination: Destination) -> bool:
        """True if prefetching is possible and the destination is a process that no other user is debugging."""
        if (claim := self.process_at(destination)) is None or not self._can_prefetch(claim.agent.id):
            return False
        return claim.target.attachment is None or claim.target.attachment.user == user_name()

    def process_at(self, destination: Destination) -> Claim | None:
        """Return the claim of the process, which only debuggers may connect to; None if there is none."""
        claim = None if destination.is_forward else self.roster.owner(destination.port, time.time())
        return None if claim is None or claim.target.pid is None else claim

    def open_request(self, agent_id: AgentId, request: Request) -> SessionStream:
        """Return a stream for a request to one agent.

        Raises:
            ConnectionLost: the agent is currently unreachable.
        """
        tunnel = self._tunnels.get(agent_id)
        if tunnel is None or not tunnel.usable:
            reason = f": {tunnel.status.reason}" if tunnel is not None and tunnel.status.reason else ""
            raise ConnectionLost(f"there is currently no connection to the agent{reason}", hint=RECONNECTING)
        return tunnel.driver.open(
            stream_name(request), encode(StreamMetadata(user_name(), self._can_prefetch(agent_id)))
        )

    def _can_prefetch(self, agent_id: AgentId) -> bool:
        """True if both peers support prefetching."""
        agent = self.roster.agent(agent_id)
        return self._prefetch and agent is not None and agent.prefetch

    @contextlib.contextmanager
    def accepting(self, port: int, handler: StreamHandler) -> Iterator[None]:
        """Allow the agent that serves `port` to open streams to the client for this port during a `with` block."""
        self._handlers[port] = handler
        try:
            yield
        finally:
            del self._handlers[port]

    # Agents:

    def link(self, agent_id: AgentId) -> LinkStatus:
        """Return the status of the tunnel to an agent in the roster."""
        return self._tunnels[agent_id].status

    def outage(self, agent_id: AgentId) -> NoListener | None:
        """Return why the tunnel to an agent carries no data now; None if it is connected, or its session is over."""
        if (tunnel := self._tunnels.get(agent_id)) is None or tunnel.status.state is LinkState.CONNECTED:
            return None
        return disconnected_error(self._event_log.name(agent_id), tunnel.status)

    async def discover(self) -> None:
        """Search until there is a tunnel to an agent; the search for the others continues.

        Raises:
            NoListener: no agent was found.
            RelayDebugError: the relay, the credentials or the tunnel key are unusable.
        """
        await self.search.find_first(lambda: next(iter(self._tunnels), None))

    async def discover_once_permitted(self) -> None:
        """Search as `discover` does; retry while the relay refuses an identity whose role may still be propagating."""
        seconds, backoff = self._credential.role_grace, Backoff(random.random)
        grace = NewRoleGrace(seconds)
        while True:
            is_first = grace.until is None
            try:
                return await self.discover()
            except RelayDebugError as error:
                if not grace.concerns(error):
                    raise
                if not grace.allows_retry(now=time.monotonic()):
                    raise refused_for_good(error) from None
                if is_first:
                    until = time.strftime("%H:%M", time.localtime(time.time() + seconds))
                    logger.warning("%s", refused_for_now(error, until))
            left = (grace.until or 0.0) - time.monotonic()
            await asyncio.sleep(max(0.0, min(backoff.next_delay(), left)))

    async def discover_all(self, *, waits: bool = True) -> None:
        """Search as `AgentSearch.find_all` does, until all agents have been found; raise the errors of `discover`."""
        try:
            await self.search.find_all(waits=waits)
        except NoListener:
            if not self._tunnels:
                raise

    def keep_searching(self) -> None:
        """Start the periodic search for all agents and the periodic reminder of attachments."""
        self._tasks.spawn(self.search.repeat(self.roster), name="look for agents periodically")
        self._tasks.spawn(self._event_log.remind_of_attachments(), name="remind of attachments")

    def set_waits(self, waits: Mapping[int, str]) -> None:
        """Show, by logical port, in which collective operation processes wait, and for whom."""
        if waits != self.roster.waits:
            self.roster.waits = waits
            self._changed()

    def _search_now(self) -> None:
        """Start a search if the limit on prompt searches has not been reached."""
        if self._budget.take(asyncio.get_running_loop().time()):
            self.search.start()

    def agent_for(self, destination: Destination) -> AgentId | None:
        """Return the id of the agent that a destination leads to, or None if it is unreachable."""
        agent_id = self.roster.route(destination, time.time())
        return agent_id if agent_id is not None and self._tunnels[agent_id].usable else None

    def nodes(self, local: Callable[[int], Local] = lambda _port: NOTHING_LOCAL) -> tuple[Node, ...]:
        """Return the records of all agents; those with a node rank come first, by rank.

        Args:
            local: Returns what this program knows about the target with a logical port.
        """
        owners, waits = self.roster.port_owners(time.time()), self.roster.waits or {}

        def record(agent: AgentInfo, found: TargetInfo) -> Target:
            owner = owners.get((agent.id, found.port), "")
            return target_record(found, local(found.port), waits=waits.get(found.port, ""), port_owner=owner)

        agents = sorted(self.roster, key=lambda agent: (agent.node_rank is None, agent.node_rank, agent.name))
        nodes = (node_record(agent, [record(agent, found) for found in agent.targets]) for agent in agents)
        return tuple(_with_link(node, self.link(AgentId(node.agent))) for node in nodes)

    def reachable_targets(self) -> list[Claim]:
        """Return the claims of all targets that can be reached now, by port."""
        claims = self.roster.targets(time.time())
        return [claim for claim in claims if self.agent_for(Destination(claim.target.port)) == claim.agent.id]

    def hurry(self) -> None:
        """Make every reconnecting tunnel dial again immediately."""
        for tunnel in self._tunnels.values():
            tunnel.hurry()

    @contextlib.contextmanager
    def joining_writes(self) -> Iterator[None]:
        """Send what streams add within the block in one message for each agent, at the end of the block."""
        with contextlib.ExitStack() as stack:
            for tunnel in self._tunnels.values():
                stack.enter_context(tunnel.driver.joining_writes())
            yield

    def describe(self) -> str:
        """Return one line with the connected agents and whether the tunnels are encrypted end to end."""
        return describe_agents(self.roster, time.time(), is_encrypted=self._identity is not None)

    def unreachable_error(self, wanted: Destination, error: RelayDebugError) -> RelayDebugError:
        """Return the error for a destination that cannot be reached, given the error of the search for it."""
        if not isinstance(error, NoListener):
            return error
        if (agent_id := self.roster.route(wanted, time.time())) is not None:
            return disconnected_error(self._event_log.name(agent_id), self.link(agent_id))
        return no_agent_error(wanted, self.endpoint.path, self.roster, self.describe()) if self._tunnels else error

    # Tunnels:

    async def _connect(self, endpoint: Endpoint, headers: Mapping[str, str]) -> WebSocket:
        return await connect(endpoint, self._credential, headers=headers, tls=self._tls)

    async def _begin(self, websocket: WebSocket) -> Begun:
        """Begin a session with the agent at the other end, unless there already is one with that agent."""
        info = encode(ClientInfo(self._client_id, user_name()))
        started = time.monotonic()
        attached, transport = await ClientTunnel.begin(websocket, self._identity, settings=self._settings, info=info)
        agent_id = AgentInfo.parse(attached.session.peer.info).id
        logger.debug("began a session with agent %s in %.3f s", agent_id, time.monotonic() - started)
        if not _AGENT_ID.fullmatch(agent_id):
            agent_id = AgentId(attached.session.id.hex())
        if (known := self._tunnels.get(agent_id)) is not None:
            self._tasks.spawn(ClientTunnel.decline(attached, transport, "this client is connected"), name="decline")
            self._discovery.mark_alive(agent_id)
            known.driver.probe(PROBE_TIMEOUT)  # the agent may have accepted this transport because it lost its last one
            known.hurry()
            return Begun(agent_id, is_new=False)

        announcements = Paced(lambda: self._announced(agent_id), ANNOUNCEMENT_INTERVAL, ANNOUNCEMENT_BURST)
        tunnel = self._tunnels[agent_id] = ClientTunnel(
            attached,
            transport,
            dial=lambda: self._discovery.dial_agent(agent_id),
            identity=self._identity,
            settings=self._settings,
            on_change=lambda status: self._link_changed(agent_id, status),
            on_info=announcements.request,
            on_open=lambda stream, event: self._opened(agent_id, tunnel.driver, stream, event),
            budget=self._budget,
        )
        self._announced(agent_id)
        self._tasks.spawn(
            self._run(agent_id, tunnel, announcements), name=f"tunnel to {self._event_log.name(agent_id)}"
        )
        return Begun(agent_id, is_new=True)

    async def _run(self, agent_id: AgentId, tunnel: ClientTunnel, announcements: Paced) -> None:
        try:
            await tunnel.run()
        finally:
            announcements.flush()  # the last one may state how the job has ended
            self.roster.remove(agent_id)
            del self._tunnels[agent_id]
            self._reported.pop(agent_id, None)
            self._discovery.mark_alive(agent_id)
            self._changed()

    def _announced(self, agent_id: AgentId) -> None:
        before, tunnel = self.roster.agent(agent_id), self._tunnels[agent_id]
        info = AgentInfo.parse(tunnel.agent_info, agent_id=agent_id, clean=printable)
        for predecessor in info.predecessors:
            self._end_killed(predecessor, info)
        if before is not None and before.generation != info.generation:
            # A relay that has closed the agent's control channel may close the transports too.
            tunnel.replace_transport()
        self._event_log.announced(info, self.leads_to)
        self._changed()

    def _end_killed(self, agent_id: AgentId, successor: AgentInfo) -> None:
        """End the session with a killed agent and close its connections, because the session cannot be resumed."""
        if (tunnel := self._tunnels.get(agent_id)) is None or agent_id == successor.id:
            return
        self.roster.lost(agent_id, time.time())  # the successor takes its ports without a conflict
        tunnel.driver.abort(f"the agent process on {successor.host} was killed; {successor.name} has replaced it")

    def _link_changed(self, agent_id: AgentId, status: LinkStatus) -> None:
        if self._closing:
            return  # the client is closing its tunnels; such changes are not logged
        if status.state is LinkState.RECONNECTING and self._has_ended(agent_id):
            self._tunnels[agent_id].driver.abort("the job has ended")  # the container was stopped together with the job
            return
        if status.state is LinkState.CONNECTED:
            self.hurry()  # the relay can be reached again
        self._event_log.link_changed(agent_id, status)
        self._changed()

    def _has_ended(self, agent_id: AgentId) -> bool:
        """True if an agent has announced the end of its last target, and is therefore about to exit."""
        agent = self.roster.agent(agent_id)
        return agent is not None and bool(agent.endings) and not (agent.targets or agent.forwards)

    def _changed(self) -> None:
        """Send each agent what it cannot know, and wake all callers that are waiting for a change."""
        conflicts, held = self._event_log.conflicts(), held_elsewhere(self.roster)
        for agent_id, tunnel in self._tunnels.items():
            reports = tuple(found.report() for found in conflicts if found.concerns(agent_id))
            mine = ClientStatus(reports, held.get(agent_id, ()))
            if mine != self._reported.get(agent_id, ClientStatus()):
                self._reported[agent_id] = mine
                tunnel.driver.send_status(encode(mine))
        self.search.announce_change()
        self.on_change()

    def _opened(self, agent_id: AgentId, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        """Pass on a stream that an agent has opened, if this client accepts streams for that port from that agent."""
        handler = self._handlers.get(event.target) if isinstance(event.target, int) else None
        if handler is None or self.agent_for(Destination(int(event.target))) != agent_id:
            driver.refuse(stream, ResetCode.NOT_ALLOWED, f"this client does not accept connections to {event.target}")
        else:
            handler(driver, stream, event)


def _with_link(node: Node, link: LinkStatus) -> Node:
    state, reason = link.state.value, link.reason or None
    return replace(node, link=state, link_since=link.since, link_reason=reason, round_trip=link.round_trip)


def blocking_holder(target: TargetInfo) -> str | None:
    """Return whose debugger keeps this user from attaching to a target; None if nobody's, or if it would give way."""
    held = target.attachment
    return None if held is None or (held.is_away and held.user == user_name()) else held.who


def user_name() -> str:
    """Return this user as agents announce it: `user@host`."""
    return f"{login_name() or 'somebody'}@{socket.gethostname()}"
