"""An embeddable relay server: binding, serving and graceful shutdown.

async with RelayServer(config) as server:
    print(server.public_address)
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from pathlib import Path

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, LocalPortInUse
from relay_core.net.memory import keep_freed_memory
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.net.tls import TlsMachine, TlsTransport
from relay_server.access import Authorizer
from relay_server.config import certificates
from relay_server.config.model import RelayConfig, is_loopback
from relay_server.connection.request_reader import Handshake
from relay_server.connection.tcp import READ_BYTES, Acceptor, Connection, Slots, source_of
from relay_server.gateway import Gateway
from relay_server.metrics import EntityMetrics, Metrics, total

logger = logging.getLogger(__name__)

TLS_HANDSHAKE_TIMEOUT = 10.0


class RelayServer:
    """A relay server.

    Args:
        config: The relay's configuration.

    Raises:
        ConfigurationError: The public key of a JWT issuer is invalid.
    """

    def __init__(self, config: RelayConfig) -> None:
        self.config = config
        self.ca_file: Path | None = None
        """Certificate of the private CA, once started; None if the user supplied the server certificate."""
        self._gateway = Gateway(config, authorizer=_authorizer(config), public_address=lambda: self.public_address)
        self._acceptor = Acceptor(self._accepted, self._free_descriptor)
        self.is_serving = False
        """True while the server accepts connections."""
        limits = config.limits
        # Agents' rendezvous have their own budget; otherwise, whoever opens the most connections would displace them.
        self._unauthenticated_others, self._unauthenticated_agents = (
            Slots(total=limits.max_unauthenticated, per_source=limits.max_unauthenticated_per_address) for _ in range(2)
        )
        self.port = config.port
        """The port to which the server is bound, once started; it stays the same after `stop` and `start`."""
        self._connections: set[Connection] = set()
        self._context: ssl.SSLContext
        self._tasks = TaskSet()
        self._all_gone = asyncio.Event()
        self._buffer = memoryview(bytearray(READ_BYTES))
        keep_freed_memory()

    # Addresses:

    @property
    def public_address(self) -> str:
        """The `host:port` to which listeners connect for a rendezvous."""
        host = self.config.namespace
        return self.config.public_address or f"{f'[{host}]' if ':' in host else host}:{self.port}"

    # Life cycle:

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            LocalPortInUse: The port is in use by another program.
            ConfigurationError: The address or the certificate is invalid.
        """
        self._use_certificate(self.config)
        if not is_loopback(self.config.bind):
            logger.warning("listening on %s: anyone who can reach this machine can reach the relay", self.config.bind)
        try:
            self.port = await self._acceptor.open(self.config.bind, self.port)
        except OSError as error:
            raise _bind_error(error, self.config.bind, self.port) from error
        self.is_serving = True
        self._gateway.is_draining = False

    def reload(self, config: RelayConfig) -> None:
        """Use the certificate, rules, JWT issuers and hybrid connections of a configuration; connections continue.

        A listener keeps its control channel until it has to renew its token. All WebSockets of a hybrid connection that
        was removed are closed with 1001, as in Azure when a hybrid connection is deleted.

        Raises:
            ConfigurationError: The certificate or the public key of an issuer is invalid. Nothing has changed.
        """
        authorizer = _authorizer(config)
        self._use_certificate(config)
        self.config = config
        self._gateway.replace_rules(config.hybrid_connections, authorizer)

    def _use_certificate(self, config: RelayConfig) -> None:
        """Read the certificate for TLS handshakes from now on."""
        files = certificates.prepare(config.tls, config.hosts)
        self._context = certificates.server_context(files)
        self.ca_file = files.ca

    async def stop(self) -> None:
        """Shut down gracefully: stop accepting, refuse waiting senders, close all WebSockets, then drop the rest."""
        if not self.is_serving:
            return
        self.is_serving = False
        await self._acceptor.close()
        self._gateway.drain()
        await first_completed(self._wait_until_empty(), timeout=self.config.limits.drain_timeout)
        await self.kill()

    async def kill(self) -> None:
        """Shut down immediately: drop every connection without a Close frame."""
        self.is_serving = False
        await self._acceptor.close()
        self.drop_all()
        await self._tasks.cancel_all()
        await self._wait_until_empty()

    async def __aenter__(self) -> RelayServer:
        await self.start()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.stop()

    # Fault injection and metrics:

    def drop_all(self) -> None:
        """Drop every connection, like a network failure."""
        for connection in list(self._connections):
            connection.abort()

    def listener_counts(self) -> dict[str, int]:
        """Return the number of listeners of each hybrid connection."""
        counts = Counter(
            control.hybrid_connection.path.lower() for control in self._gateway.matchmaker.registry.listeners
        )
        return {item.path: counts[item.path.lower()] for item in self.config.hybrid_connections}

    def metrics(self) -> Metrics:
        """Return a snapshot of the whole relay."""
        return Metrics(
            **total(self.metrics_of_entities()),
            connections=len(self._connections),
            unauthenticated=len(self._unauthenticated_others) + len(self._unauthenticated_agents),
            refused=self._gateway.refused,
            buffered_bytes=sum(connection.buffered for connection in self._connections),
        )

    def metrics_of_entities(self) -> dict[str, EntityMetrics]:
        """Return a snapshot of each hybrid connection, by path; OTHER_ENTITIES stands for the rest."""
        return self._gateway.metrics()

    def _accepted(self, accepted: socket.socket, host: str, port: int) -> None:
        """Start the TLS handshake of a new connection, which counts as unauthenticated from now on."""
        connection = Connection(self._buffer, self._connected, self._disconnected)
        connection.remote = (host, port)
        unowned = [accepted]
        task = self._tasks.spawn(self._shake_hands(unowned, connection), name=f"TLS handshake {host}")
        source = source_of(host)
        budget = self._unauthenticated_agents if self._gateway.has_listener(source) else self._unauthenticated_others
        connection.leave_budget = budget.add(source, lambda: connection.abort() if task.done() else task.cancel())

        def clean_up(ended: asyncio.Task[bool]) -> None:
            for left in unowned:  # it was cancelled before its first step
                left.close()
            if ended.cancelled() or not ended.result():
                connection.leave_budget()

        task.add_done_callback(clean_up)

    async def _shake_hands(self, unowned: list[socket.socket], connection: Connection) -> bool:
        """Return True when TLS is established; a connection that sends nothing needs 10 KiB until the time limit."""
        machine = TlsMachine(self._context, server_side=True)
        tls = TlsTransport(connection, machine, is_proven=False)
        try:
            async with timeout(TLS_HANDSHAKE_TIMEOUT):
                await asyncio.get_running_loop().connect_accepted_socket(lambda: tls, unowned.pop())
                await tls.established
        except BaseException as error:  # also if cancelled: nothing else would close the connection
            tls.abort()
            if not isinstance(error, (OSError, *TIMEOUT_ERRORS)):  # these include TLS errors
                raise
            logger.debug("a TLS handshake failed: %s", error)
            return False
        return True

    def _free_descriptor(self) -> bool:
        return (
            self._unauthenticated_others.evict() or self._unauthenticated_agents.evict() or self._gateway.evict_idle()
        )

    def _connected(self, connection: Connection) -> None:
        if not self.is_serving:  # its TLS handshake was in progress when the server stopped
            connection.abort()
            return
        self._connections.add(connection)
        handshake = Handshake(connection)
        task = self._tasks.spawn(self._gateway.serve(handshake), name=f"serve {connection.remote}")
        handshake.on_lost = task.cancel

    def _disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    async def _wait_until_empty(self) -> None:
        while self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()


def _authorizer(config: RelayConfig) -> Authorizer:
    return Authorizer(hosts=config.hosts, rules=config.rules, issuers=config.jwt_issuers)


def _bind_error(error: OSError, host: str, port: int) -> Exception:
    if error.errno == errno.EADDRINUSE:
        return LocalPortInUse(
            f"port {port} on {host} is in use by another program",
            hint=f"stop it, or choose another 'port'; to see which program it is, run: ss -ltnp 'sport = :{port}'",
        )
    reason = error.strerror or "the address is not usable"
    return ConfigurationError(f"cannot listen on {host} port {port}: {reason}", hint="check 'bind' and 'port'")
