"""Executes requests from other programs in a running relay-client, and shows them its state and its events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar

from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels, blocking_holder, user_name
from relay_client.control import messages
from relay_client.control.log_history import LogHistory
from relay_client.control.state import ClientId, Port, Status, changes
from relay_client.job_session.members import Group
from relay_client.ports import rank_port
from relay_client.ports.forwarder import LOCAL_HOST, Forwarder
from relay_client.ports.local_port import LocalPort
from relay_client.ranks.changes import Event
from relay_client.ranks.record import Connection, Local, Node, Target
from relay_client.ui.text import format_ports
from relay_client.verbs.verb import Session, Verb
from relay_core.agent_api.announcement import Attachment, State
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import LocalPortInUse, NoListener, NothingToRelease, RelayDebugError, UsageError
from relay_core.grouping import by_key
from relay_core.value_parsers import format_ranges, is_port

LOG = "log"
RELEASED = "the rank was released on request"
"""The reason that is shown to the editors that are disconnected."""
RELEASE_TIMEOUT = 5.0
"""Seconds to wait until the agent announces that a released target is free; this takes one round trip, unless the
tunnel is interrupted."""

logger = logging.getLogger(__name__)


_asking: ContextVar[Subscriber | None] = ContextVar("_asking", default=None)
"""The connection whose verb a task is performing; its program is shown what the verb is waiting for."""


class Subscriber:
    """One connection that may receive events.

    Args:
        send: Called with each event of a kind that the connection has subscribed to.
    """

    def __init__(self, send: Callable[[Event], None]) -> None:
        self.kinds: Collection[str] = ()
        self._send = send

    def receive(self, event: Event) -> None:
        """Send an event if its kind was subscribed to."""
        is_about_own_verb = event.level == "warning" and _asking.get() is self
        if event.event in self.kinds or is_about_own_verb:
            self._send(event)


class ControlService:
    """Answers requests and produces events, for any number of connections.

    The method `_do_NAME` performs the request NAME, which only a running relay-client can perform.

    Args:
        client: Identity of this relay-client.
        tunnels: Its tunnels.
        forwarder: Its ports.
        logs: Its log.
    """

    def __init__(self, client: ClientId, tunnels: Tunnels, forwarder: Forwarder, logs: LogHistory) -> None:
        self.client = client
        self.subscribers: set[Subscriber] = set()
        self.stopping = asyncio.Event()
        """Set when another program has requested that this one stop."""
        self._tunnels = tunnels
        self._forwarder = forwarder
        self._logs = logs
        self._on_demand: set[int] = set()
        """Local ports that were opened for requests."""
        self._last: Status | None = None
        """The state as last sent to subscribers; None while nobody has subscribed."""
        self._stops: dict[tuple[str | None, int | None], str] = {}
        """The last event of each rank that has stopped or continued."""
        self._session = Session(tunnels)
        tunnels.on_change = self._changed
        tunnels.nodes_here = self._stopped_nodes
        forwarder.on_change = self._changed
        logs.on_line = self._logged

    async def answer(self, request: messages.Request, subscriber: Subscriber) -> messages.Result:
        """Return the result of a request.

        Args:
            request: The request.
            subscriber: The connection on which the request arrived.

        Raises:
            RelayDebugError: the request failed.
        """
        if isinstance(request, Verb):
            _asking.set(subscriber)  # only for this task: each request has its own
            return await self._session.perform(request)
        perform: Callable[[messages.OwnRequest, Subscriber], Awaitable[messages.Result]]
        perform = getattr(self, f"_do_{request.name}")
        return await perform(request, subscriber)

    async def look_for_agents(self) -> None:
        """Search as frequently as for a waiting editor until an agent is found, because a user is watching."""
        with contextlib.suppress(RelayDebugError):  # the program itself reports the error
            await self._tunnels.search.wait_for(lambda: len(self._tunnels.roster) or None, lambda _why: None)

    # Events:

    async def _do_status(self, _request: messages.GetStatus, _subscriber: Subscriber) -> Status:
        return self._snapshot()

    async def _do_logs(self, request: messages.Logs, subscriber: Subscriber) -> messages.LogLines:
        subscriber.kinds = {*subscriber.kinds, LOG} if request.follow else subscriber.kinds
        return messages.LogLines(self._logs.last(request.lines))

    async def _do_stop(self, _request: messages.Stop, _subscriber: Subscriber) -> messages.Stopping:
        self.stopping.set()
        return messages.Stopping()

    async def _do_subscribe(self, request: messages.Subscribe, subscriber: Subscriber) -> Status:
        kinds = set(messages.EVENTS) - {LOG} if request.events is None else set(request.events)
        if unknown := kinds - set(messages.EVENTS):
            raise UsageError(f"unknown kind of event: '{min(unknown)[:40]}'", hint=f"use {', '.join(messages.EVENTS)}")
        self._changed()  # the other subscribers first receive earlier changes
        subscriber.kinds = {*subscriber.kinds, *kinds}
        self._last = self._snapshot()
        return self._last

    def _changed(self) -> None:
        """Send the changes since the last call."""
        if not any(set(subscriber.kinds) - {LOG} for subscriber in self.subscribers):
            self._last = None
            self._stops.clear()
            return
        before, after = self._last, self._snapshot()
        self._last = after
        for event in changes(before, after) if before is not None else ():
            rank = (event.agent, event.port)
            if self._stops.get(rank) == event.event == "continued":
                continue  # its debugger has reported this here, and then disconnected before the node announced it
            if event.event in {"stopped", "continued"}:
                self._stops[rank] = event.event
            self._send(event)

    def _logged(self, line: messages.LogLine) -> None:
        if self.subscribers:
            self._send(Event(LOG, line.time, line.text, level=line.level))

    def _send(self, event: Event) -> None:
        named = Event(**{**vars(event), "client": self.client.id})
        for subscriber in list(self.subscribers):
            subscriber.receive(named)

    def _stopped_nodes(self) -> tuple[Node, ...]:
        """Return what all agents have announced, and where editors of this program have stopped ranks."""
        stops = {target.port: target.stop for node in self._snapshot().nodes for target in node.targets}
        return self._tunnels.nodes(lambda port: Local(stop=stops.get(port)))

    def _snapshot(self) -> Status:
        return take_snapshot(self.client, self._tunnels, self._forwarder, tuple(self._on_demand))

    # Ranks:

    async def _do_attach(self, request: messages.Attach, _subscriber: Subscriber) -> messages.Attached:
        claim = await self._claim(request)
        target = claim.target
        known = [local.port for local in self._forwarder.ports if local.destination == Destination(target.port)]
        wanted = request.local_port
        is_new = wanted not in known if wanted is not None else not known
        port = await self._open(claim, wanted) if is_new else wanted or known[0]
        try:
            await rank_port.wake(self._tunnels, claim)
        except RelayDebugError:
            if is_new:
                await self._close(port)
            raise
        logger.info("%s", rank_port.how_to_attach(claim, port))
        holder = blocking_holder(target)
        return messages.Attached(target.port, port, LOCAL_HOST, is_new, target.rank, claim.agent.host, holder)

    async def _do_attach_all(self, _request: messages.AttachAll, _subscriber: Subscriber) -> messages.AttachedAll:
        for local in self._forwarder.ports:
            if local.destination.is_all_ranks:
                return messages.AttachedAll(local.port, LOCAL_HOST, is_new=False)
        local = await self._forwarder.open_free(Destination(0, is_all_ranks=True))
        self._on_demand.add(local.port)
        self._changed()
        logger.info("press F5 to debug all ranks on port %d", local.port)
        return messages.AttachedAll(local.port, LOCAL_HOST, is_new=True)

    async def _do_open(self, request: messages.OpenPorts, _subscriber: Subscriber) -> messages.Opened:
        wanted = [
            LocalPort(each.port, Destination(each.remote_port, each.is_forward, each.node_rank, each.is_all_ranks))
            for each in request.ports
        ]
        if not all(is_port(local.port) for local in wanted):
            raise UsageError("invalid port", hint="use ports from 1 to 65535")
        missing = [local for local in wanted if local not in (*self._forwarder.ports, *self._forwarder.editor_ports)]
        await self._forwarder.open_all(missing)
        self._on_demand.difference_update(local.port for local in wanted)
        self._changed()
        opened = tuple(local.port for local in missing)
        if opened:
            logger.info("opened %s at the request of another program, such as F5", format_ports(opened))
        return messages.Opened(opened)

    async def _claim(self, request: messages.Attach) -> Claim:
        """Return the target that a request is about.

        Raises:
            NoListener: there is no such target, and the request does not wait for one.
            UsageError: the request names no target, or several match.
        """
        if request.rank is None and request.port is None:
            raise UsageError("specify a rank or a port")

        def found() -> list[Claim] | None:
            return rank_port.claims_of(self._tunnels, rank=request.rank, port=request.port) or None

        claims = await self._tunnels.search.wait_for(found, lambda _why: None) if request.wait else found()
        if not claims:
            raise self._unknown(request)
        return rank_port.single_claim(claims)

    def _unknown(self, request: messages.Attach | messages.Release) -> RelayDebugError:
        claims = self._tunnels.reachable_targets()
        ranks = format_ranges(sorted({claim.target.rank for claim in claims if claim.target.rank is not None}))
        hint = f"use a registered rank: {ranks}" if ranks else "wait until a rank is registered"
        error = NoListener(
            f"{rank_port.process_name(request.rank, request.port)} is not registered on '{self.client.hc}'", hint=hint
        )
        return rank_port.missing_error(self._tunnels, request.rank, request.port, error)

    async def _open(self, claim: Claim, wanted: int | None) -> int:
        """Open a local port for a target, and return it; by default the logical port, or a free one if it is in use."""
        try:
            local = await rank_port.open_rank_port(self._forwarder, claim, wanted)
        except LocalPortInUse:
            if wanted is not None:
                raise
            local = await self._forwarder.open_free(Destination(claim.target.port))
        self._on_demand.add(local.port)
        self._changed()
        return local.port

    async def _close(self, port: int) -> None:
        self._on_demand.discard(port)
        await self._forwarder.close_port(port)

    async def _do_release(self, request: messages.Release, _subscriber: Subscriber) -> messages.Released:
        known = [target for node in self._snapshot().nodes for target in node.targets]
        targets = [target for target in known if rank_port.is_wanted(target, request.rank, request.port)]
        if request.rank is None and request.port is None:
            raise UsageError("specify a rank or a port")
        if not targets:
            raise self._unknown(request)
        ports = [port for target in targets for port in target.local_ports]
        count = sum([await self._forwarder.disconnect(port, RELEASED) for port in ports])
        jobs = self._forwarder.job_sessions
        count += sum(connection.release(target.port) for connection in jobs for target in targets)
        closed = tuple(port for port in ports if port in self._on_demand)
        for port in closed:
            await self._close(port)
        if not count:
            count = sum([await self._tunnels.release(target.port) for target in targets])
        if not count and not closed:
            raise self._nothing_to_release(targets[0])
        if count:
            await self._until_free([target.port for target in targets])
        return messages.Released(count, closed)

    async def _until_free(self, ports: Sequence[int]) -> None:
        """Wait until the agents have announced that these targets are free or held by somebody else."""
        holders = self._holders(ports)
        with contextlib.suppress(*TIMEOUT_ERRORS):
            async with timeout(RELEASE_TIMEOUT):
                while holders and self._holders(ports) == holders:
                    await self._tunnels.search.changed.wait()

    async def _do_group(self, request: messages.ChooseGroup, _subscriber: Subscriber) -> messages.ChosenGroup:
        sessions = [connection.session for connection in self._forwarder.job_sessions]
        if not sessions:
            hint = "attach to the port opened by --all-ranks or by an 'attach_all' request"
            raise NoListener("no editor is attached to the session of all ranks", hint=hint)
        if request.group is not None:
            group = Group.parse(request.group)
            for connection in self._forwarder.job_sessions:
                connection.choose(group)
        return messages.ChosenGroup(sessions[0].stepping.group_text)

    def _holders(self, ports: Sequence[int]) -> list[Attachment]:
        targets = [target for agent in self._tunnels.roster for target in agent.targets if target.port in ports]
        return [target.attachment for target in targets if target.attachment is not None]

    def _nothing_to_release(self, target: Target) -> NothingToRelease:
        if target.holder is not None:
            where = "quit it there: q in 'relay-client pdb', Stop in an editor"
            hint = where if target.holder == user_name() else "ask that user to disconnect"
            return NothingToRelease(f"{target.label} is held by {target.who}, not through this relay-client", hint=hint)
        hint = "run 'relay-client status' to list the ranks that are held"
        if target.state == State.WAITING.value:
            command = f"relay-client --hc {self.client.hc} pdb {rank_port.chosen(target.rank, target.port)}"
            hint = f"it is waiting for one; to let it continue, run '{command}', and then enter q"
        return NothingToRelease(f"no debugger is attached to {target.label}", hint=hint)


# The state that other programs see, from the tunnels and the open ports.


def take_snapshot(client: ClientId, tunnels: Tunnels, forwarder: Forwarder, on_demand: Sequence[int] = ()) -> Status:
    """Return the current state.

    Args:
        client: Identity of this relay-client.
        tunnels: Its tunnels.
        forwarder: Its open ports.
        on_demand: The local ports that requests have opened.
    """
    ports = tuple(
        [port_record(local, is_on_demand=local.port in on_demand) for local in forwarder.ports]
        + [port_record(local, is_editor=True) for local in forwarder.editor_ports]
    )
    connections = tuple(record.describe() for record in forwarder.connections)
    leading = by_key((port.remote_port, port) for port in ports if not port.is_forward)

    def local(remote_port: int) -> Local:
        """Return what the connections to the target with a logical port show about it."""
        leads = leading.get(remote_port, ())
        numbers = {port.port for port in leads}
        mine = [each for each in connections if each.port in numbers or each.remote_port == remote_port]
        # A process and each of its children have separate connections, each with its own stop.
        stops = [connection.stop for connection in mine if connection.stop is not None]
        return Local(
            tuple(port.port for port in leads if not port.is_editor),
            any(connection.state == Connection.CONNECTED for connection in mine),
            max(stops, key=lambda stop: stop.since, default=None),
        )

    return Status(client, time.time(), tunnels.nodes(local), ports, connections)


def port_record(local: LocalPort, *, is_on_demand: bool = False, is_editor: bool = False) -> Port:
    """Return a local port as other programs see it."""
    to = local.destination
    return Port(local.port, to.port, to.is_forward, to.node_rank, is_on_demand, to.is_all_ranks, is_editor)
