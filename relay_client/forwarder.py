"""Local ports on 127.0.0.1, each connection carried to the agent.

An editor may come before the job: its connection is held, and the agent looked for, until one is there or the editor
has gone. One port takes any number of connections, because debugpy's child processes come back on their parent's.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Sequence

from relay_client.ports import format_ports
from relay_client.tunnels import Tunnels
from relay_core.errors import ConnectionLost, LocalPortInUse, NoListener, RelayDebugError, UsageError
from relay_core.net.compat import TIMEOUT_ERRORS, timeout
from relay_core.net.pump import READ_SIZE, Traffic, close_writer, pump, set_nodelay
from relay_core.net.stream import ByteStream
from relay_core.net.tasks import TaskSet

__all__ = ["Forwarder", "forward"]

LOCAL_HOST = "127.0.0.1"
MAX_EARLY_BYTES = 256 * 1024
"""Bytes kept of what a local program sends before an agent is there; then it is not read any more."""
RETRY_DELAYS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Seconds between looks for an agent while an editor waits; the last one repeats."""

logger = logging.getLogger(__name__)


async def forward(tunnels: Tunnels, ports: Sequence[int]) -> None:
    """Forward until cancelled; a problem that waiting cannot cure is found before the ports open.

    Raises:
        RelayDebugError: the relay, the credentials or the ports are unusable.
    """
    logger.info("starting")
    async with tunnels:
        try:
            await tunnels.discover()
            seen = tunnels.describe()
        except NoListener as error:
            seen = f"{error.sentence}; waiting for one ({error.hint})"
        async with Forwarder(tunnels, ports):
            logger.info("ready on %s, port %s: %s", LOCAL_HOST, format_ports(ports), seen)
            await asyncio.Event().wait()


class Forwarder:
    """Listens on local ports and carries what connects to them.

        async with Forwarder(tunnels, [5678, 5679]) as forwarder:
            ...

    Raises:
        LocalPortInUse, UsageError: on entering, if a port cannot be had; no other port stays open then.
    """

    def __init__(self, tunnels: Tunnels, ports: Sequence[int]) -> None:
        self._tunnels = tunnels
        self._ports = list(ports)
        self._servers: list[asyncio.Server] = []
        self._connections = TaskSet()
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Forwarder ports={self._ports} connections={len(self._connections)}>"

    async def __aenter__(self) -> Forwarder:
        try:
            for port in self._ports:
                self._servers.append(await self._listen(port))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop accepting, then drop what is connected."""
        for server in self._servers:
            server.close()
        await self._connections.cancel_all()
        for server in self._servers:
            await server.wait_closed()

    async def _listen(self, port: int) -> asyncio.Server:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            name = f"port {port} connection {next(self._numbers)}"
            self._connections.spawn(self._carry(port, name, reader, writer), name=name)

        try:
            return await asyncio.start_server(accepted, LOCAL_HOST, port, limit=READ_SIZE)
        except OSError as error:
            raise _listen_error(port, error) from None

    async def _carry(self, port: int, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        traffic = Traffic()
        early = bytearray()
        try:
            set_nodelay(writer)
            logger.info("%s: accepted", name)
            stream = await self._open_while_wanted(port, name, reader, early)
            if stream is None:
                logger.info("%s: left before an agent was there", name)
                return
            logger.info("%s: connected to the agent", name)
            await stream.write(bytes(early))
            traffic.sent += len(early)
            await pump(reader, writer, stream, traffic)
            logger.info("%s: closed (%d bytes sent, %d received)", name, traffic.sent, traffic.received)
        except ConnectionLost as lost:
            logger.warning("%s: lost: %s", name, lost.reason or lost.sentence)
        except RelayDebugError as error:
            logger.error("%s: %s", name, error)
        finally:
            await close_writer(writer)

    async def _open_while_wanted(
        self, port: int, name: str, reader: asyncio.StreamReader, early: bytearray
    ) -> ByteStream | None:
        """Return a stream to the agent, however long it takes it to come; None once the local side has left.

        What the local side sends in the meantime is added to `early`.
        """
        told = ""
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            try:
                return await self._tunnels.open(port)
            except RelayDebugError as error:
                if not error.retryable:
                    raise
                if str(error) != told:
                    logger.warning("%s: waiting: %s", name, error)
                    told = str(error)
            if await _left(reader, early, within=delay):
                break
        return None


async def _left(reader: asyncio.StreamReader, early: bytearray, *, within: float) -> bool:
    """Whether the local side ends its connection in the next `within` seconds; what it sends is added to `early`."""
    try:
        async with timeout(within):
            while len(early) < MAX_EARLY_BYTES:
                chunk = await reader.read(READ_SIZE)
                if not chunk:
                    return True
                early += chunk
            await asyncio.sleep(within)
    except TIMEOUT_ERRORS:
        return False
    except OSError:
        return True
    return False


def _listen_error(port: int, error: OSError) -> RelayDebugError:
    if error.errno == errno.EADDRINUSE:
        return LocalPortInUse(
            f"port {port} on this machine is in use",
            hint="end the other program (often an earlier relay-client), or use other --ports",
        )
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} needs administrator rights", hint="use ports from 1024 up")
    return LocalPortInUse(f"cannot listen on {LOCAL_HOST}:{port}: {error.strerror}", hint="use other --ports")
