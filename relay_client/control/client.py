"""The client's end of the control socket: finds this user's running relay-clients and sends them requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from relay_client.control.directory import Address, ControlDirectory
from relay_client.control.messages import GetStatus, OpenPorts, Request
from relay_client.control.protocol import ClientProtocol, Received, decode
from relay_client.control.state import ClientId, Port
from relay_client.ranks.changes import Event
from relay_client.verbs.verb import LOG_AFTER
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import (
    ConfigurationError,
    ConnectionLost,
    Interrupted,
    NoClient,
    ProtocolError,
    RelayDebugError,
    Unauthorized,
)
from relay_core.hyco.address import Endpoint
from relay_core.net.tasks import close_writer

HELLO_TIMEOUT = 5.0
"""Seconds to wait for an answer; a relay-client that takes longer is suspended or overloaded."""
CANCEL_TIMEOUT = 15.0
"""Seconds to wait until a request is cancelled, which takes a request to each agent."""
READ_SIZE = 256 * 1024

logger = logging.getLogger(__name__)


class ClientExited(ConnectionLost):
    """The relay-client has exited, in contrast to a lost connection to an agent, which it reports as an answer."""


def namespace_of(endpoint: Endpoint) -> str:
    """Return the host and port of a relay, as in a `ClientId`."""
    return urlsplit(str(endpoint)).netloc


class ControlClient:
    """A connection to one relay-client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: ClientProtocol) -> None:
        self.about: ClientId
        self.address: Address
        self.on_log: Callable[[str], None] | None = None
        """Called with each log line, such as what a verb is waiting for."""
        self._reader = reader
        self._writer = writer
        self._protocol = protocol
        self._received: list[Received] = []

    @classmethod
    async def connect(cls, address: Address) -> ControlClient:
        """Connect, and wait for the relay-client's greeting.

        Raises:
            ConnectionRefusedError, FileNotFoundError: nothing is listening at the address any more.
            RelayDebugError: another program is listening at the address, or the relay-client does not answer.
        """
        if address.port is not None:
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        elif hasattr(asyncio, "open_unix_connection"):
            reader, writer = await asyncio.open_unix_connection(str(address.path))
        else:  # the file of a program with another Python
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        client = cls(reader, writer, ClientProtocol(token=address.token, nonce=secrets.token_hex(16)))
        client.address = address
        text = f"waiting for a relay-client to answer ({address.path})"
        slow = asyncio.get_running_loop().call_later(LOG_AFTER, logger.warning, "%s", text)
        try:
            async with timeout(HELLO_TIMEOUT):
                client.about = (await client._next("hello")).hello  # type: ignore[assignment] # `_next` checks it
        except TIMEOUT_ERRORS:
            await client.close()
            hint = "it may be suspended (Ctrl-Z): enter fg in its terminal, or end it"
            raise NoClient(f"a relay-client is not answering ({address.path})", hint=hint) from None
        except BaseException:
            await client.close()
            raise
        finally:
            slow.cancel()
        return client

    async def close(self) -> None:
        """Disconnect."""
        await close_writer(self._writer)

    async def request(self, request: Request) -> Any:
        """Send a request and return its result, of the type `request.result`.

        Events that arrive meanwhile are kept for `events`, unless there is an `on_log`.

        Raises:
            ConnectionLost: the relay-client has exited.
            RelayDebugError: the request failed.
        """
        answer = await self._next("id", self._protocol.send_request(request))
        if answer.error is not None:
            raise answer.error
        return decode(request.result, answer.result)

    async def cancel(self, name: str) -> None:
        """Cancel the last request, and wait until this is done; the connection can no longer be used.

        Raises:
            Interrupted: it was too late, or it is unknown whether it was.
        """
        self._writer.write_eof()
        try:
            async with timeout(CANCEL_TIMEOUT):
                answer = await self._next("id", self._protocol.last_id)
        except TIMEOUT_ERRORS:
            raise Interrupted(f"the relay-client has not confirmed that '{name}' was cancelled") from None
        except ClientExited:
            return
        if answer.error is None:
            raise Interrupted(f"it was too late to cancel '{name}'")
        if isinstance(answer.error, Interrupted):
            raise answer.error

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events that were subscribed to, until the relay-client exits."""
        with contextlib.suppress(ConnectionLost):
            while True:
                event = (await self._next("event")).event
                assert event is not None  # noqa: S101 - for mypy: `_next` has checked it
                yield event

    async def until_closed(self) -> None:
        """Wait until the relay-client has exited."""
        async for _event in self.events():
            pass

    async def _next(self, field: str, value: object = None) -> Received:
        """Return the next message in which a field is set or has the given value; keep other messages.

        Raises:
            ConnectionLost: the relay-client has exited.
        """
        while True:
            if (data := self._protocol.data_to_send()) and not self._writer.is_closing():
                self._writer.write(data)
            for received in self._received:
                found = getattr(received, field)
                if found is not None and (value is None or found == value):
                    self._received.remove(received)
                    return received
            try:
                data = await self._reader.read(READ_SIZE)
            except OSError:
                data = b""
            if not data:
                raise ClientExited("the relay-client has exited")
            for received in self._protocol.receive_data(data):
                if self.on_log is not None and received.event is not None and received.event.event == "log":
                    self.on_log(received.event.text)
                else:
                    self._received.append(received)


@contextlib.asynccontextmanager
async def running_clients(
    directory: ControlDirectory | None = None, *, needs_one: bool = False
) -> AsyncIterator[list[ControlClient]]:
    """Connect to all running relay-clients of this user during a block; remove the files of those that were killed.

    Raises:
        ConfigurationError: the directory is not private.
        NoClient: `needs_one`, and all of them are suspended.
    """
    where = directory or ControlDirectory()
    try:
        addresses = list(where.addresses())
    except PermissionError as error:
        hint = "remove it, or set RELAY_CLIENT_DIR to a directory with mode 0700"
        raise ConfigurationError(str(error), hint=hint) from None
    found = await asyncio.gather(*(_try_to_connect(where, address) for address in addresses))
    clients = sorted((one for one in found if isinstance(one, ControlClient)), key=lambda one: one.about.started)
    for silent in (one for one in found if isinstance(one, Exception)):
        if needs_one and not clients and isinstance(silent, NoClient):
            raise silent
        logger.warning("%s", silent)
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def client_that_forwards(endpoint: Endpoint, ports: Collection[Port]) -> ClientId | None:
    """Return this user's running relay-client that has all these ports open for a hybrid connection, or None.

    If a relay-client has only some of them open, it is asked to open the others.

    Args:
        endpoint: The hybrid connection.
        ports: The ports. A port that an `attach` request has opened does not count, because `release` closes it.

    Raises:
        RelayDebugError: the relay-client cannot open the others.
    """
    async with running_clients() as clients:
        wanted = namespace_of(endpoint), endpoint.path
        same = [client for client in clients if (client.about.namespace, client.about.hc) == wanted]
        opened = [(client, await _ports_of(client)) for client in same]
        for client, found in opened:
            if set(ports) <= found:
                return client.about
        for client, found in opened:
            if {port.port for port in ports} & {port.port for port in found}:
                await client.request(OpenPorts(tuple(ports)))
                return client.about
    return None


async def _ports_of(client: ControlClient) -> set[Port]:
    try:
        async with timeout(HELLO_TIMEOUT):
            return set((await client.request(GetStatus())).ports)
    except (*TIMEOUT_ERRORS, RelayDebugError):  # the relay-client is exiting, or suspended
        return set()


async def _try_to_connect(directory: ControlDirectory, address: Address) -> ControlClient | Exception | None:
    try:
        return await ControlClient.connect(address)
    except (ConnectionRefusedError, FileNotFoundError, ProtocolError, Unauthorized):
        directory.remove(address)  # the relay-client was killed, and another program may have taken its port
    except (OSError, RelayDebugError) as error:
        return error
    return None
