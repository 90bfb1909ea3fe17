"""The local port of all ranks: one editor's connection (`JobConnection`), and its connection to each rank (`RankLink`).

Which messages go to which rank is decided by `relay_client.job_session`. This module follows the roster, opens and
closes the connections, and asks the agents what the ranks are doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from relay_client.agents.event_log import name_with_node
from relay_client.agents.requests import ask_agents
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.agents.wait_for_ending import ProcessKey, announced_exit_code
from relay_client.compare.console import Command
from relay_client.editor.messages import JobView
from relay_client.editor.notices import WaitingNotices
from relay_client.job_session import wire
from relay_client.job_session.members import Group, RankName
from relay_client.job_session.session import JobSession
from relay_client.ports.connection_records import PortLog
from relay_client.ports.editor_link import PortContext
from relay_client.ports.local_port import LocalPort
from relay_client.ports.waiting_connection import WaitingConnection
from relay_client.stacks import places
from relay_client.ui.text import since_text
from relay_client.verbs.console import answer_as_text
from relay_core.agent_api.questions import ReadStacks
from relay_core.dap.framing import MessageDecoder, encode
from relay_core.dap.messages import Request
from relay_core.errors import ProtocolError, RelayDebugError
from relay_core.net.streams.local_endpoint import LocalHandler, LocalSide
from relay_core.net.tasks import SOON, DeadlineTimer, TaskSet, first_completed

logger = logging.getLogger(__name__)


PLACES_TIMEOUT = 1.2
"""Seconds for an agent to read the stacks of its processes; after this time, the summary is shown without them."""


async def find_places(tunnels: Tunnels, processes: Mapping[int, ProcessKey]) -> dict[int, str]:
    """Return what processes are doing, for those whose agents answer; the keys are those of `processes`."""
    asked = {agent for agent, _, _ in processes.values()}
    agents = [agent for agent in tunnels.roster if agent.id in asked]
    nodes = await ask_agents(tunnels, ReadStacks(), agents, within=PLACES_TIMEOUT)
    found = {(node.agent.id, port): place for node in nodes for port, place in places(node.replies).items()}
    return {number: found[key[:2]] for number, key in processes.items() if found.get(key[:2])}


# The editor's end of a connection to one rank; a session of all ranks acts as the editor of each rank.
#
# Why a rank is reached like an editor's connection, through `waiting_connection`, and not by a stream of its own:
# everything that an editor has on the way to a rank (waiting for the target, prefetching, the guard for requests, the
# reason of an end) is needed here too, and would otherwise exist twice. A loopback connection to the rank's own port
# would need no `RankLink`, but two descriptors and two passes through the kernel for each message of each rank, and an
# open port. `RankLink` is what remains of the socket: order, back-pressure and EOF.
#
# What is ugly: bytes from a rank are passed on in a later iteration of the event loop (`SOON`). The session may
# answer while it is called, and a layer that is about to return outputs must not be called again.


class RankLink:
    """A `LocalSide` without a socket: `ports.waiting_connection` carries it to the rank like an editor's connection.

    Args:
        on_data: Called with bytes from the rank's debugger, in a later iteration of the event loop than the one in
            which they arrive: the session may answer immediately, and layers must not be called while they return
            outputs.
        on_end: Called when the debugger has closed its direction, after all of its bytes.
    """

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self._on_data = on_data
        self._on_end = on_end
        self._handler: LocalHandler | None = None
        self._unsent: deque[bytes] = deque()
        """Bytes from the session that have not been sent yet."""
        self._received: list[bytes] = []
        self._deliver = DeadlineTimer(self.deliver)
        self._has_end = False
        self._is_held = self._is_slow = False
        """Whether the stream accepts no more bytes at the moment, and whether the editor is reading too slowly."""
        self.is_gone = False
        """Whether the connection is closed."""

    # Called by the session:

    def send(self, data: bytes) -> None:
        """Send bytes to the rank's debugger."""
        if not self.ended.is_set():
            self._unsent.append(data)
            self._push()

    def end(self) -> None:
        """Close this direction after the bytes sent so far."""
        if not self.ended.is_set():
            self.ended.set()
            if self._handler is not None:
                self._handler.local_eof()

    def pause(self) -> None:
        """Make the debugger wait until `resume` is called, because the editor is reading too slowly."""
        self._is_slow = True
        if self._handler is not None:
            self._handler.local_writing_paused()

    def resume(self) -> None:
        """Let the debugger send again."""
        self._is_slow = False
        if self._handler is not None:
            self._handler.local_writing_resumed()

    # As a LocalSide:

    def deliver_to(self, handler: LocalHandler) -> None:
        """Pass the unsent bytes to the handler, and from now on all events as they occur."""
        self._handler = handler
        self._is_held = False
        if self._is_slow:
            handler.local_writing_paused()
        self._push()
        if self.ended.is_set() and self._handler is handler:
            handler.local_eof()

    def detach(self) -> None:
        """Remove the handler, and keep further bytes for the next one."""
        self._handler, self._is_held = None, False

    def write(self, data: bytes) -> None:
        """Pass bytes to the session, in a later iteration of the event loop."""
        if not self.is_gone:
            self._received.append(data)
            self._deliver.set(SOON)

    def write_eof(self) -> None:
        """Pass EOF to the session, after the bytes."""
        self._has_end = True
        self._deliver.set(SOON)

    def pause_reading(self) -> None:
        """Hold back what the session sends."""
        self._is_held = True

    def resume_reading(self) -> None:
        """Pass on what was held back."""
        self._is_held = False
        self._push()

    async def close(self) -> None:
        """Close the connection."""
        self.abort()

    def abort(self) -> None:
        """Close the connection; the session still receives what has arrived."""
        self.is_gone = True
        self.ended.set()

    def _push(self) -> None:
        while self._unsent and self._handler is not None and not self._is_held:
            self._handler.local_data(self._unsent.popleft())

    def deliver(self) -> None:
        """Pass what has arrived to the session now."""
        received, self._received = self._received, []
        if received:
            self._on_data(b"".join(received))
        if self._has_end:
            self._has_end = False
            self._on_end()


# The local port of all ranks: the connection of one editor, and a connection to each rank of the job.
#
# Ranks are taken from the roster: those that are registered when the editor attaches, those that register later, and
# those that are restarted. A rank that somebody else is debugging is left out until it is free.
# `relay_client.job_session` decides which messages are sent to which rank; each connection to a rank is carried like an
# editor's connection to the rank's own port.
#
# Why ranks are followed by comparing the roster with the links, at each change and every second, and not by handling
# each kind of change: a rank can appear, restart, be held by somebody, be released, and move to another agent, in any
# order, and some of these depend on time only (`RETRY_DELAY`, `HELD_DELAY`). A comparison needs no history, and a
# change that was missed is made up for a second later.
#
# A restarted rank keeps its port and its rank; only its process id is new. So `ProcessKey` contains the id, and what is
# remembered about a process does not apply to its successor.

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the roster, in addition to the check after each change."""
RETRY_DELAY = 5.0
"""Seconds before another attempt to debug a process whose connection has failed."""
HELD_DELAY = 1.0
"""Seconds before a held rank is reported; a rank that was just released is still announced as held for a moment."""
END_PATIENCE = 2.0
"""Seconds without any rank after which a job that has succeeded is considered to be over."""
RESTART_PATIENCE = 30.0
"""Seconds without any rank after which a failed job is considered to be over; a launcher may restart it until then."""
RELEASE_TIMEOUT = 3.0
"""Seconds for the debuggers to process the end of the session."""
STOPPED = "this client was stopped; the job continues without a debugger"


@dataclass(eq=False)
class _Link:
    """The connection to one rank."""

    key: ProcessKey
    claim: Claim
    name: RankName
    end: RankLink
    decoder: MessageDecoder
    is_broken: bool = False
    """True if the rank's debugger has sent what is not a message; what follows is not read."""


class JobConnection:
    """One editor's connection to the port of all ranks.

    Args:
        context: What the connections have in common.
        local: The local port.
        endpoint: The editor's connection; closed at the end.
    """

    def __init__(self, context: PortContext, local: LocalPort, endpoint: LocalSide) -> None:
        self.session = JobSession(allow_terminate=context.allow_terminate)
        self._context = context
        self._tunnels = context.tunnels
        self._local = local
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._decoder = MessageDecoder()
        self._timer = DeadlineTimer(self._tick)
        self._links: dict[int, _Link] = {}
        self._tasks = TaskSet()
        self._over = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when the session may need other ranks."""
        self._is_slow = False
        """Whether the editor is reading too slowly."""
        self._numbers = 0
        self._flush = DeadlineTimer(self.flush)
        """Handles the outputs once all ranks whose data arrived together have passed theirs to the session."""
        self._ended: dict[ProcessKey, float] = {}
        """When the last connection to a process ended."""
        self._held: dict[ProcessKey, float] = {}
        """When somebody else was first seen debugging a process, by the event loop's clock; infinite once shown."""
        self._released: set[ProcessKey] = set()
        """Processes that somebody has released from this session."""
        self._empty_since: float | None = None
        self._waiting: WaitingNotices | None = None
        """The lines that are shown until the first rank attaches."""

    async def run(self) -> None:
        """Carry the connection until the editor disconnects or the job has ended."""
        logger.info("port %d: an editor has connected to all ranks", self._local.port)
        try:
            self._endpoint.deliver_to(self)
            await first_completed(self._over.wait(), self._follow_ranks())
        except RelayDebugError as error:
            self._conclude(str(error))
        except asyncio.CancelledError:
            self._conclude(STOPPED)
            raise
        finally:
            self._endpoint.detach()
            self._timer.cancel()
            await self._release()
            self._endpoint.write_eof()
            await first_completed(self._endpoint.close(), timeout=RELEASE_TIMEOUT)
            self._endpoint.abort()
            logger.info("port %d: the session of all ranks has ended", self._local.port)

    def choose(self, group: Group) -> None:
        """Make another group of ranks move together, and show the group in the debug console."""
        self.session.stepping.group = group
        self.session.show(f"the group is now {self.session.stepping.group_text}")
        self.flush()

    def release(self, port: int) -> int:
        """Leave out the process with a logical port; close the connections to it, and return how many there were."""
        links = [link for link in self._links.values() if link.key[1] == port]
        for link in links:
            self._released.add(link.key)
            link.end.end()
        return len(links)

    def _conclude(self, reason: str) -> None:
        self.session.conclude(reason)
        self.flush()

    async def _release(self) -> None:
        """Close the connections to all ranks; their debuggers then resume the ranks."""
        for link in self._links.values():
            link.end.end()
        deadline = self._loop.time() + RELEASE_TIMEOUT
        while self._links and (left := deadline - self._loop.time()) > 0:
            self._changed.clear()
            await first_completed(self._changed.wait(), timeout=left)
        await self._tasks.cancel_all()

    # As the handler of the editor's connection:

    def local_data(self, data: bytes) -> None:
        """Handle bytes from the editor."""
        try:
            messages = self._decoder.receive_data(data)
        except ProtocolError as error:
            logger.warning("port %d: %s", self._local.port, error)
            self._conclude(str(error))
            self._over.set()
            return
        for message in messages:
            self.session.receive_editor(message, self._loop.time())
        self._changed.set()
        self.flush()

    def local_eof(self) -> None:
        """End the session."""
        self._over.set()

    def local_lost(self, _error: Exception | None) -> None:
        """End the session."""
        self._over.set()

    def local_writing_paused(self) -> None:
        """Make the ranks' debuggers wait until the editor catches up."""
        self._is_slow = True
        for link in self._links.values():
            link.end.pause()

    def local_writing_resumed(self) -> None:
        """Let the ranks' debuggers continue."""
        self._is_slow = False
        for link in self._links.values():
            link.end.resume()

    # Outputs:

    def flush(self) -> None:
        """Execute the outputs of the session; the editor, and each agent, receives its messages in one piece."""
        while outputs := self.session.wire.take():  # a child process that joins has outputs, too
            if to_editor := b"".join(encode(output.message) for output in outputs if isinstance(output, wire.ToEditor)):
                self._endpoint.write(to_editor)
            has_several = sum(isinstance(output, wire.ToRank) for output in outputs) > 1
            with self._tunnels.joining_writes() if has_several else contextlib.nullcontext():
                self._execute(outputs)
        self._timer.set(self.session.next_deadline())

    def _execute(self, outputs: Iterable[wire.Output]) -> None:
        for output in outputs:
            match output:
                case wire.ToRank(number, message) if number in self._links:
                    self._links[number].end.send(encode(message))
                case wire.CloseRank(number):
                    self._rank_ended(number)
                case wire.OpenChild(number, pid):
                    self._open_child(number, pid)
                case wire.FindPlaces(members):
                    self._tasks.spawn(self._find_places(members), name="find out where ranks are")
                case wire.AskRanks(request, question):
                    self._tasks.spawn(self._ask_ranks(request, question), name="ask all ranks")
                case wire.EndSession():
                    self._over.set()

    def _tick(self) -> None:
        self.session.tick(self._loop.time())
        self.flush()

    async def _find_places(self, members: frozenset[int]) -> None:
        links = {number: self._links[number] for number in members if number in self._links}
        keys = {number: link.key for number, link in links.items() if link.name.child is None}
        found = await find_places(self._tunnels, keys)
        waits = self._tunnels.roster.waits or {}
        found |= {number: waits[key[1]] for number, key in keys.items() if key[1] in waits}
        self.session.stops.places_found(found)
        self.flush()

    async def _ask_ranks(self, request: Request, question: Command) -> None:
        self.session.wire.answer_text(request, await answer_as_text(self._tunnels, question))
        self.flush()

    # Ranks:

    async def _follow_ranks(self) -> NoReturn:
        """Connect to the ranks of the job as they register, and end the session once no more ranks are expected."""
        async with TaskSet() as searching:
            while True:
                self._changed.clear()
                roster_changed = self._tunnels.search.changed
                if self.session.wants_ranks:
                    if self._waiting is None:
                        self._waiting = WaitingNotices(self._loop.time())
                        searching.spawn(self._search(self._waiting), name="look for the ranks of the job")
                    self._look()
                await first_completed(self._changed.wait(), roster_changed.wait(), timeout=CHECK_INTERVAL)

    async def _search(self, waiting: WaitingNotices) -> None:
        """Search for agents until there is a rank."""

        def show_waiting(error: RelayDebugError) -> None:
            waiting.set_reason(error.reason_to_wait, self._loop.time())

        try:
            await self._tunnels.search.wait_for(lambda: self._claims() or None, show_waiting)
        except RelayDebugError as error:
            self._conclude(str(error))

    def _claims(self) -> list[Claim]:
        """Return the job's reachable ranks; ports that `relay-agent serve` offers are not ranks."""
        return list(filter(_is_of_job, self._tunnels.reachable_targets()))

    def _look(self) -> None:
        """Connect to ranks that are new or have become free."""
        now = self._loop.time()
        for claim in self._claims():
            key = _key(claim)
            if any(link.key == key for link in self._links.values()):
                self._held.pop(key, None)
            elif key in self._released:
                continue
            elif claim.target.attachment is not None:
                self._note_holder(key, claim, now)
            elif now - self._ended.get(key, -RETRY_DELAY) >= RETRY_DELAY or key in self._held:
                self._held.pop(key, None)
                label = claim.target.label
                self._open(claim, RankName(label, claim.target.rank, name_with_node(claim.target, claim.agent)))
        self._show_waiting(now)
        self._end_if_empty(now)
        self.flush()

    def _note_holder(self, key: ProcessKey, claim: Claim, now: float) -> None:
        since = self._held.setdefault(key, now)
        attachment = claim.target.attachment
        if attachment is not None and now - since >= HELD_DELAY:
            self._held[key] = float("inf")
            holder = f"{attachment.who}{since_text(attachment.since)}"
            self.session.show(f"{claim.target.label} is held by {holder}; it will join once it is free")

    def _open(self, claim: Claim, name: RankName) -> None:
        """Connect to the debugger of a rank, for the rank itself or for one of its child processes."""
        self._numbers += 1
        number = self._numbers
        end = RankLink(lambda data: self._received(number, data), lambda: self._rank_ended(number))
        if self._is_slow:
            end.pause()
        self._links[number] = _Link(_key(claim, name), claim, name, end, MessageDecoder())
        self._tasks.spawn(self._carry(number, end, claim.target.port), name=f"{name.label} for all ranks")
        self.session.join(number, name)

    def _open_child(self, number: int, pid: int) -> None:
        if link := self._links.get(number):
            self._open(link.claim, link.name.of_child(pid))

    async def _carry(self, number: int, end: RankLink, port: int) -> None:
        record = self._context.connections.add(self._local.port, port)
        link, code = self._links[number], None
        try:
            local = LocalPort(self._local.port, Destination(port))
            await WaitingConnection(self._context, local, record, end, PortLog(local)).carry()
            end.deliver()
            self.flush()  # while the rank is known: its last message may offer a child process
            if link.name.child is None and self.session.wants_ranks and not self.session.has_exit_code(number):
                code = await announced_exit_code(self._tunnels, link.key)
        finally:
            self._context.connections.remove(record)
            del self._links[number]
            if link.name.child is None:
                self._ended[link.key] = self._loop.time()
            self.session.lost(number, self._loop.time(), code)
            self._changed.set()
            self.flush()

    def _received(self, number: int, data: bytes) -> None:
        link = self._links.get(number)
        if link is None or link.is_broken:
            return
        try:
            messages = link.decoder.receive_data(data)
        except ProtocolError as error:
            logger.warning("port %d: %s", self._local.port, error)
            link.is_broken, messages = True, []
            self.session.leave_out(number, str(error))
        for message in messages:
            self.session.receive_rank(number, message, self._loop.time())
        self._flush.set(SOON)

    def _rank_ended(self, number: int) -> None:
        if link := self._links.get(number):
            link.end.end()

    # Waiting, and the end:

    def _show_waiting(self, now: float) -> None:
        if self._waiting is None or self._numbers:
            return
        view = JobView(self._local.port, self._tunnels.endpoint.path, label="the ranks of the job")
        for text, _category in self._waiting.due(view, now):
            self.session.show(text)

    def _end_if_empty(self, now: float) -> None:
        remaining = filter(_is_of_job, self._tunnels.roster.targets(time.time()))
        is_empty = bool(self._numbers) and not self._links and next(remaining, None) is None
        if not is_empty:
            self._empty_since = None
            return
        if self._empty_since is None:
            self._empty_since = now
            if self.session.has_failed:
                self.session.show(f"all ranks have ended; waiting {RESTART_PATIENCE:g} s for the job to restart")
        if now - self._empty_since >= (RESTART_PATIENCE if self.session.has_failed else END_PATIENCE):
            self._conclude("all ranks have ended")


def _is_of_job(claim: Claim) -> bool:
    return claim.target.rank is not None or claim.target.pid is not None


def _key(claim: Claim, name: RankName | None = None) -> ProcessKey:
    child = name.child if name is not None else None
    return claim.agent.id, claim.target.port, claim.target.pid if child is None else child
