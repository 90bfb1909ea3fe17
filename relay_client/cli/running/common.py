"""Functions that the commands in this package share: options, and the selection of a running relay-client."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from relay_client.cli.common import add_command, add_json, quiet_logging
from relay_core.errors import ConnectionLost, NoClient, NoListener, RelayDebugError, UsageError

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient
    from relay_client.control.messages import Request
    from relay_client.control.state import ClientId

__all__ = [
    "add_client",
    "add_running_command",
    "answers",
    "as_json",
    "clients_named",
    "first_response",
    "only_client",
    "run_with_clients",
    "running",
]


def add_client(parser: argparse.ArgumentParser) -> None:
    """Add `--client`."""
    parser.add_argument(
        "--client",
        default="",
        metavar="NAME",
        help="use only the relay-client with this id, process id or hybrid connection, as shown by 'relay-client "
        "status'",
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_client(parser)
    add_json(parser)


add_running_command = functools.partial(add_command, add_options=_add_options)
"""Adds a command that inspects or controls running relay-clients; they need no credentials."""


def run_with_clients(
    arguments: argparse.Namespace, command: Callable[[Sequence[ControlClient]], Awaitable[None]]
) -> int:
    """Run a command with the running relay-clients that the command line names.

    Raises:
        NoClient: no running relay-client matches.
    """
    from relay_core.program.run import run_until_stopped

    async def run() -> None:
        async with running(lambda _about: True) as clients:
            await command(clients_named(clients, arguments.client))

    quiet_logging(arguments)
    return run_until_stopped(run())


@contextlib.asynccontextmanager
async def running(is_wanted: Callable[[ClientId], bool]) -> AsyncIterator[list[ControlClient]]:
    """Connect to the selected running relay-clients during an `async with` block."""
    from relay_client.control.client import running_clients

    found = await running_clients()
    try:
        yield [client for client in found if is_wanted(client.about)]
    finally:
        for client in found:
            await client.close()


async def answers(clients: Sequence[ControlClient], request: Request) -> list[Any]:
    """Return the results of a request from those relay-clients that have not exited in the meantime.

    Raises:
        ConnectionLost: all of them have exited.
        RelayDebugError: a request failed.
    """
    found: list[Any] = []
    lost = None
    for client in clients:
        try:
            found.append(await client.request(request))
        except ConnectionLost as error:
            lost = error
    if lost is not None and not found:
        raise lost
    return found


def clients_named(clients: Sequence[ControlClient], name: str) -> list[ControlClient]:
    """Return the relay-clients with this id, process id or hybrid connection, or all of them for "".

    Raises:
        NoClient: there are none.
    """
    found = [one for one in clients if not name or name in {one.about.id, str(one.about.pid), one.about.hc}]
    if not found:
        raise _no_client(name)
    return found


def _no_client(name: str) -> NoClient:
    which = f"no relay-client named '{name}' is running" if name else "no relay-client is running"
    return NoClient(which, hint="to start one, run: relay-client --hc NAME --ports 5678")


def only_client(clients: Sequence[ControlClient]) -> ControlClient:
    """Return the only relay-client.

    Raises:
        UsageError: several relay-clients are running.
    """
    if len(clients) > 1:
        names = ", ".join(f"{client.about.id} ('{client.about.hc}')" for client in clients)
        raise UsageError(f"{len(clients)} relay-clients are running: {names}", hint="choose one with --client")
    return clients[0]


async def first_response(
    clients: Sequence[ControlClient], request: Request, refused: type[RelayDebugError] = NoListener
) -> Any:
    """Send a request to relay-clients one by one, and return the first result, which has the type `request.result`.

    Args:
        clients: The relay-clients.
        request: The request.
        refused: The errors after which the request is sent to the next relay-client.

    Raises:
        RelayDebugError: every relay-client answered with an error; an error other than NoListener takes precedence.
    """
    errors: list[RelayDebugError] = []
    for client in clients:
        try:
            return await client.request(request)
        except refused as error:
            errors.append(error)
    raise min(errors or [_no_client("")], key=lambda error: isinstance(error, NoListener))


def as_json(value: object) -> str:
    """Return a value as indented JSON."""
    from relay_client.control.protocol import encode

    return json.dumps(encode(value), indent=2)
