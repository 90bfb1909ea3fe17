"""The control socket's server: accepts connections from this user's programs and passes requests to the service.

Every user of the machine can connect to a TCP port. So connections of other users are closed before the next one is
accepted, where the system shows users, and everywhere those that do not authenticate in time. Otherwise, another user
could use up relay-client's file descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import struct
import time
from pathlib import Path

from relay_client.control.client import namespace_of
from relay_client.control.directory import Address, ControlDirectory
from relay_client.control.messages import Request, Subscribe
from relay_client.control.protocol import MAX_RESULT, ServerProtocol
from relay_client.control.service import ControlService, Subscriber
from relay_client.control.state import ClientId
from relay_client.ranks.changes import Event
from relay_client.verbs.table import VERBS
from relay_core.errors import RelayDebugError
from relay_core.hyco.address import Endpoint
from relay_core.net.loopback import PeerCheck
from relay_core.net.streams.local_server import LocalServer
from relay_core.net.tasks import TaskSet, close_writer
from relay_core.program.parser import installed_version
from relay_core.socket_tables import ROOT, own_user

READ_SIZE = 64 * 1024
AUTHENTICATION_TIMEOUT = 15.0
"""Seconds after which a connection to a TCP port is closed if the program has not proved that it knows the token."""

logger = logging.getLogger(__name__)


def client_id(command: str, endpoint: Endpoint) -> ClientId:
    """Return a new identity for this process."""
    return ClientId(
        id=secrets.token_hex(4),
        pid=os.getpid(),
        namespace=namespace_of(endpoint),
        hc=endpoint.path,
        command=command,
        started=time.time(),
        cwd=str(Path.cwd()),
        version=installed_version() or "unknown",
        verbs=tuple(verb.name for verb in VERBS),
    )


class ControlServer:
    """Listens during an `async with` block; if that is impossible, the program runs without a control socket.

    Args:
        service: Answers the requests.
        directory: Where other programs find the socket.
    """

    def __init__(self, service: ControlService, directory: ControlDirectory | None = None) -> None:
        self._service = service
        self._directory = directory or ControlDirectory()
        self._address: Address | None = None
        self._server: asyncio.Server | LocalServer | None = None
        self._connections = TaskSet()

    async def __aenter__(self) -> ControlServer:
        try:
            listener, self._address = self._directory.listen(self._service.client.id)
        except OSError as error:
            logger.warning("no control socket: %s; other programs cannot control this relay-client", error)
            return self
        if self._address.port is not None:
            peers = PeerCheck(frozenset({own_user(), ROOT}), lambda why: logger.warning("control port: %s", why))
            server = LocalServer(
                listener, lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accepted), peers.admits
            )
            self._server = await server.serve()
        elif hasattr(asyncio, "start_unix_server"):  # `listen` does not choose Unix sockets otherwise
            self._server = await asyncio.start_unix_server(self._accepted, sock=listener)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        if self._server is None or self._address is None:
            return
        self._server.close()
        self._directory.remove(self._address)
        await self._connections.cancel_all()
        await self._server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.spawn(self._serve(reader, writer), name="control connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = self._address.token if self._address is not None else None
        protocol = ServerProtocol(self._service.client, token=token, challenge=secrets.token_hex(16))
        connection = _Connection(self._service, protocol, writer)
        try:
            peer: socket.socket = writer.get_extra_info("socket")
            if token is not None or is_own_user(peer):
                await connection.serve(reader)
            else:
                logger.warning("refused a control connection from another user of this machine")
        except RelayDebugError as error:
            logger.warning("control connection: %s", error)
        except OSError:
            pass  # the program was killed
        finally:
            await close_writer(writer)


class _Connection:
    """The connection from one program."""

    def __init__(self, service: ControlService, protocol: ServerProtocol, writer: asyncio.StreamWriter) -> None:
        self._service = service
        self._protocol = protocol
        self._writer = writer
        self._subscriber = Subscriber(self._send_event)

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer requests until the program disconnects, then cancel those in progress.

        Raises:
            RelayDebugError: the program does not follow the protocol.
        """
        end = asyncio.get_running_loop().call_later(AUTHENTICATION_TIMEOUT, self._end_without_proof)
        self._service.subscribers.add(self._subscriber)
        try:
            async with TaskSet() as tasks:
                self._flush()
                while data := await reader.read(READ_SIZE):
                    requests = self._protocol.receive_data(data)
                    self._flush()
                    for number, request in requests:
                        tasks.spawn(self._answer(number, request), name=f"control request {request.name}")
                        if isinstance(request, Subscribe):
                            tasks.spawn(self._service.look_for_agents(), name="look for agents for a subscriber")
        finally:
            end.cancel()
            self._service.subscribers.discard(self._subscriber)

    def _end_without_proof(self) -> None:
        if not self._protocol.is_open:
            self._writer.transport.abort()

    async def _answer(self, number: int, request: Request) -> None:
        try:
            result = await self._service.answer(request, self._subscriber)
        except RelayDebugError as error:
            self._protocol.send_error(number, error)
        else:
            self._protocol.send_result(number, result)
        self._flush()

    def _send_event(self, event: Event) -> None:
        self._protocol.send_event(event)
        self._flush()

    def _flush(self) -> None:
        if self._writer.transport.get_write_buffer_size() > MAX_RESULT:
            self._writer.transport.abort()  # the program is not reading
        elif (data := self._protocol.data_to_send()) and not self._writer.is_closing():
            self._writer.write(data)


# Determines which user is at the other end of a Unix socket.

_UCRED = struct.Struct("3i")
"""Linux: struct ucred of SO_PEERCRED: pid, uid, gid (unix(7))."""
_XUCRED = struct.Struct("2I")
"""macOS: the beginning of struct xucred of LOCAL_PEERCRED: version, uid (sys/ucred.h)."""
SOL_LOCAL = 0
LOCAL_PEERCRED = 1
NOT_SHOWN = frozenset({errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""Errors of a system that never shows the peer's user, whatever the connection."""


def is_own_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user or of root.

    If the system never shows the peer's user, return True, because only this user can enter the socket's directory. If
    it does, but the user cannot be determined, return False.
    """
    try:
        return _peer_user(connection) in {own_user(), ROOT}
    except OSError as error:
        return error.errno in NOT_SHOWN


def _peer_user(connection: socket.socket) -> int:
    if (option := getattr(socket, "SO_PEERCRED", None)) is not None:
        _pid, linux_user, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))
        return int(linux_user)
    _version, mac_user = _XUCRED.unpack(connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, _XUCRED.size))
    return int(mac_user)
