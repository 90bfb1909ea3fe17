"""The agent: listens on a hybrid connection and connects clients to its targets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

from relay_agent.agent.attachments import Attachments
from relay_agent.agent.dial import DescriptorsExhausted, connect_to_editor, serve_stream
from relay_agent.agent.handshake_admission import Admission, RefusalLog
from relay_agent.agent.port_targets import PortTarget, PortTargets
from relay_agent.agent.responses import Answer, respond_on_stream
from relay_agent.agent.succession import Succession
from relay_agent.agent.targets import Target, TargetGone, TargetProvider
from relay_agent.job.paths import current_directory
from relay_core.agent_api.announcement import AgentInfo, State, fit
from relay_core.agent_api.metadata import ClientStatus, StreamMetadata
from relay_core.agent_api.requests import Listen, parse_request
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, ConnectionLost, ProtocolError, RelayDebugError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.listener import ListenerState
from relay_core.hyco.sas import Credential
from relay_core.net.hybrid.listener import HybridConnectionListener, Offer
from relay_core.net.session.agent import AgentTunnels, Grace
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.secure_channel import NO_TUNNEL_KEY
from relay_core.net.session.settings import keep_seconds, tunnel_settings
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.streams.bridge import Traffic
from relay_core.net.tasks import Paced, TaskSet, first_completed
from relay_core.records import parse
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.handshake import MISDIRECTED, TUNNEL_HEADER, TunnelHeader, misdirected
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.outcomes import ResetCode, Role

NO_TUNNEL = (426, "this agent accepts relay-client connections only")
"""Upgrade Required (RFC 9110, 15.5.22): the sender does not use the tunnel protocol."""
ANONYMOUS = "somebody"
"""Name of a client that does not announce its user."""
ANNOUNCEMENT_INTERVAL = 0.05
"""Minimum time in seconds from one announcement to the next, too short for users to notice. All ranks of a node often
change together. Each announcement contains all of them, so one for each change would cost the square of their
number."""
IN_CONTACT_INTERVAL = 0.2
"""Seconds between checks for connected clients after listening has become impossible."""
DRAIN_TIMEOUT = 1.5
"""Maximum time in seconds that an exiting agent waits for open connections to finish, so that debugpy's last events
reach the editor. The job waits 2 s for its agent to exit."""

logger = logging.getLogger(__name__)


class Agent:
    """Serves targets to the clients of one hybrid connection, until it is cancelled or can no longer listen.

    Args:
        endpoint: The hybrid connection.
        credential: Must grant the Listen right.
        targets: The targets that clients can reach; nothing else on this machine is reachable through the agent.
        tunnel_key: 32 bytes shared with the clients, or None for unencrypted tunnels.
        tls: Defaults to the system's authorities and `RELAY_CA_FILE`.
        settings: Limits and timers of the tunnels; by default, read from the environment.
        grace: How long sessions without a connection are kept; by default, read from the environment.
        on_listening: Called each time the control channel is connected.
        on_retry: Called with the reason for each failure to listen that the agent will retry.
        on_failure: Called once, with the reason, if listening becomes impossible; connected clients are still served.
        succession: The agent's id and its predecessors; by default, a new id and no predecessors.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        targets: TargetProvider | Mapping[int, PortTarget],
        *,
        tunnel_key: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        settings: Settings | None = None,
        grace: Grace | None = None,
        on_listening: Callable[[], None] = lambda: None,
        on_retry: Callable[[RelayDebugError], None] = lambda _error: None,
        on_failure: Callable[[RelayDebugError], None] = lambda _error: None,
        succession: Succession | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._provider = PortTargets(targets) if isinstance(targets, Mapping) else targets
        self._announcing = Paced(self._announce, ANNOUNCEMENT_INTERVAL, share=2)  # processes wait for it
        self._connections = TaskSet()
        self._holders = Attachments(self.publish, self._connections)
        self._on_listening = on_listening
        self._on_retry = on_retry
        self._on_failure = on_failure
        self._encrypted = tunnel_key is not None
        self._succession = succession or Succession()
        self._listener = HybridConnectionListener(
            endpoint,
            credential,
            listener_id=self._succession.agent_id,
            tls=tls,
            on_state=self._show_state,
            is_needed=self._is_needed,
            has_listened=self._succession.has_listened,
        )
        self._info = AgentInfo(
            self._succession.agent_id,
            host=socket.gethostname(),
            cwd=current_directory(),
            predecessors=self._succession.predecessors,
            prefetch=True,
        )
        self._left_out = 0
        """Number of targets omitted from the announcement, as last logged."""
        self._tunnels = AgentTunnels(
            TunnelIdentity(Role.AGENT, tunnel_key) if tunnel_key is not None else None,
            info=self._fitted(),
            on_open=self._open,
            on_status=self._status_received,
            on_over=self._update_held_jobs,
            on_contact=self._holders.contact_changed,
            settings=settings or tunnel_settings(grace=Grace().idle),
            grace=grace or Grace(in_use=keep_seconds(default=Grace().in_use)),
        )
        self._admission = Admission()
        self._beginning: set[str] = set()
        """Clients whose first transport is being set up or is in use. Parallel connection attempts by one client must
        not start two sessions."""
        self._last_logged = ""
        """The last warning about the listener."""
        self._refusals = RefusalLog()

    def publish(self) -> None:
        """Announce a change to all clients; changes that follow each other quickly are announced together."""
        self._announcing.request()

    async def drain(self, target: Target, *, within: float) -> None:
        """Wait up to `within` seconds until changes are announced and a target's client has its debug session's end."""
        with contextlib.suppress(*TIMEOUT_ERRORS):
            async with timeout(within):
                await self._announcing.until_called()
                await self._holders.until_ended(target)

    async def run(self) -> None:
        """Serve until cancelled, then wait briefly for open connections to finish.

        Raises:
            RelayDebugError: listening has become impossible, and the last connected client has disconnected.
        """
        if not self._encrypted:
            logger.warning(NO_TUNNEL_KEY)
        async with self._connections:
            try:
                async with self._listener:
                    async for offer in self._listener:
                        self._connections.spawn(self._serve_offer(offer), name=f"offer {offer.id}")
            except RelayDebugError as error:
                self._on_failure(error)
                await self._serve_connected(error)
                raise
            finally:
                await self._drain_before_exit()
                self._refusals.close()
                self._announcing.flush()
                await self._tunnels.close("the job or its agent has exited")

    async def _serve_connected(self, error: RelayDebugError) -> None:
        """Wait until all clients have disconnected: their transports continue to work without the listener."""
        if self._tunnels.in_contact:
            logger.error("no longer listening: %s; connected clients stay connected", error.sentence)
        while self._tunnels.in_contact:  # noqa: ASYNC110 - at the end only, and the exact moment does not matter
            await asyncio.sleep(IN_CONTACT_INTERVAL)

    async def _drain_before_exit(self) -> None:
        """Wait up to `DRAIN_TIMEOUT` seconds for all connections to close."""
        deadline = asyncio.get_running_loop().time() + DRAIN_TIMEOUT
        while self._tunnels.streams and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - bounded, once
            await asyncio.sleep(0.05)

    async def _serve_offer(self, offer: Offer) -> None:
        """Accept a sender and use it as a transport until it closes, or reject it."""
        try:
            with contextlib.ExitStack() as at_end:
                # A rejection needs a slot too, because it opens a connection to the relay.
                async with self._admission.place():
                    header = TunnelHeader.parse(offer.header(TUNNEL_HEADER))
                    rejection = self._rejection(header)
                    if header is None or rejection is not None:
                        await offer.reject(*(rejection or NO_TUNNEL))
                        return
                    if header.agent is None:
                        self._beginning.add(header.client)
                        at_end.callback(self._beginning.discard, header.client)
                    limit = self._admission.time_limit
                    self._tunnels.table.info = self._fitted()  # with changes that are announced only if they last
                    transport, attached = await self._tunnels.shake_hands(await offer.accept(), within=limit)
                await self._tunnels.run(transport, attached)
        except ConnectionLost as lost:
            self._refusals.add(logging.INFO, lost.sentence)
        except RelayDebugError as error:
            self._refusals.add(logging.WARNING, str(error))

    def _rejection(self, header: TunnelHeader | None) -> tuple[int, str] | None:
        """Return the status and text with which to reject a sender, or None if it can be served."""
        if header is None:
            return NO_TUNNEL
        agent_id = self._listener.listener_id
        if header.agent not in {None, agent_id}:
            return MISDIRECTED, misdirected("this is a different agent", agent_id)
        if header.agent is None and (header.client in self._beginning or self._tunnels.has_session_of(header.client)):
            return MISDIRECTED, misdirected("this client is already connected to this agent", agent_id)
        return None

    def _is_needed(self) -> bool:
        """Return whether a debugger is attached or a process is being held until one attaches."""
        held = (State.WAITING, State.CRASHED)
        return bool(self._tunnels.streams) or any(
            target.describe().state in held for target in self._provider.targets()
        )

    def _announce(self) -> None:
        self._tunnels.send_status(self._fitted())
        self._update_held_jobs()

    def _update_held_jobs(self) -> None:
        elsewhere = (parse(ClientStatus, status).held_jobs for status in self._tunnels.statuses)
        self._provider.set_held_jobs(self._announcement().held_jobs.union(*elsewhere))

    def _status_received(self, status: Mapping[str, object]) -> None:
        self._provider.status_received(parse(ClientStatus, status))
        self._update_held_jobs()

    def _fitted(self) -> dict[str, object]:
        """Return the announcement to send; log how many targets it omits, and again when that number doubles."""
        info = self._announcement()
        fields, left_out = fit(info)
        if left_out > 2 * self._left_out:
            logger.warning(
                "not announcing %d of %d targets (those with the highest ports): an announcement has no room for more",
                *(left_out, len(info.targets)),
            )
            self._left_out = left_out
        return fields

    def _announcement(self) -> AgentInfo:
        targets = tuple(
            replace(target.describe(), attachment=self._holders.attachment(target))
            for target in self._provider.targets()
        )
        return replace(self._provider.describe(self._info), targets=targets)

    def _open(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        """Connect a client to a target, or respond to the client's request."""
        metadata = parse(StreamMetadata, event.metadata)
        user, prefetch = metadata.user or ANONYMOUS, metadata.prefetch
        if isinstance(event.target, str) and (request := parse_request(event.target)):
            driver.accept(stream)
            answer: Answer = self._provider.answer
            if isinstance(request, Listen):
                answer = functools.partial(self._connect_to_editor, stream, driver, user, prefetch=prefetch)
            responding = respond_on_stream(answer, request, stream, user)
            self._connections.spawn(responding, name=f"request {event.target}")
            return
        target = self._provider.find(event.target) if isinstance(event.target, int) else None
        if target is None:
            name = f"port {event.target}" if isinstance(event.target, int) else f"'{event.target}'"
            logger.warning("refused a connection to %s: this agent does not serve it", name)
            driver.refuse(stream, ResetCode.NOT_ALLOWED, f"this agent does not serve {name}")
            return
        if held := self._holders.refusal(target, driver, user, is_release=metadata.is_release):
            logger.info("port %s: refused a connection from %s: %s", target, user, held)
            driver.refuse(stream, ResetCode.HELD, held)
            return
        driver.accept(stream)
        serving = self._serve(target, stream, driver, user, prefetch=prefetch)
        self._connections.spawn(serving, name=f"port {target}")

    async def _serve(
        self, target: Target, stream: SessionStream, driver: SessionDriver, user: str, *, prefetch: bool
    ) -> None:
        traffic = Traffic()
        # A browser opens many connections to a forwarded port; they do not belong in the job's log.
        level = logging.INFO if target.dap_only else logging.DEBUG
        if target.dap_only:
            logger.info("port %s: connected", target)
        try:
            async with self._holders.holding(target, driver, user) as reports:
                serving = serve_stream(
                    *(target, stream, traffic), prefetch=prefetch, on_end=reports.ended, on_stop=reports.stopped
                )
                await first_completed(serving, _abort_after_end(target, stream))
        except ProtocolError as error:
            logger.warning("port %s: refused: %s", target, error)
        except TargetGone as gone:
            stream.abort(gone.sentence, code=ResetCode.GONE)
            logger.info("port %s: %s", target, gone.sentence)
        except ConnectionLost as lost:
            stream.abort(lost.sentence)
            level = logging.WARNING if isinstance(lost, DescriptorsExhausted) else level
            what = lost.sentence if lost.is_orderly else f"connection lost: {lost.sentence}"
            logger.log(level, "port %s: %s", target, what)
        except RelayDebugError as error:
            logger.warning("port %s: %s", target, error)
        else:
            logger.log(level, "port %s: closed (%d bytes in, %d out)", target, traffic.received, traffic.sent)

    async def _connect_to_editor(
        self, stream: SessionStream, driver: SessionDriver, user: str, request: Listen, *, prefetch: bool
    ) -> None:
        """Connect a target's debugger to the client's listening editor, and return when the client closes `stream`."""
        port = request.port
        target = self._provider.find(port)
        if target is None:
            raise ConfigurationError(f"this agent does not serve port {port}")
        if held := self._holders.refusal(target, driver, user):
            raise ConfigurationError(f"port {port} is {held}")
        async with self._holders.holding(target, driver, user) as reports:
            await connect_to_editor(target, driver, stream, reports, prefetch=prefetch)

    def _show_state(self, state: ListenerState, error: RelayDebugError | None) -> None:
        if state is ListenerState.LISTENING:
            ports = [str(target.logical_port) for target in self._provider.targets()]
            which = f"port{'' if len(ports) == 1 else 's'} {', '.join(ports)}" if ports else "no ports yet"
            logger.info("listening on '%s' (namespace %s), %s", self._endpoint.path, self._endpoint.host, which)
            self._last_logged = ""
            self._succession.listening()
            self.publish()  # the announcement includes the listener's new generation
            self._on_listening()
        elif error is not None:
            self._info = replace(self._info, generation=self._info.generation + 1)
            if state is ListenerState.WAITING:
                if not self._listener.is_replacing_token:
                    self._log_error(error)
                self._on_retry(error)

    def _log_error(self, error: RelayDebugError) -> None:
        """Log why the agent is not listening, unless the last warning was the same."""
        text = str(error)
        if text != self._last_logged:
            logger.warning("not listening, retrying: %s", text)
            self._last_logged = text


async def _abort_after_end(target: Target, stream: SessionStream) -> NoReturn:
    """Abort a stream if its target exits without closing the connection.

    Raises:
        ConnectionLost: the target has exited.
    """
    reason = await target.until_ended()
    stream.abort(reason, code=ResetCode.GONE)
    raise ConnectionLost(reason)
