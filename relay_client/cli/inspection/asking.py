"""Performs verbs for a command: in a running relay-client on the same hybrid connection, or else in this process.

A running relay-client has credentials, tunnels and all agents, so the command needs none of them. The command performs
the verb itself if there is no such relay-client, if it is too old to know the verb, or if it exits in the meantime and
the verb changes nothing in the job.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import make_tunnels, run_quietly
from relay_client.cli.running import clients_named, only_client
from relay_client.verbs.verb import Answer, Verb
from relay_core.errors import ConfigurationError, RelayDebugError
from relay_core.exit_codes import INTERRUPTED
from relay_core.foreign import escape_controls
from relay_core.program.options import access_settings

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient
    from relay_client.control.state import ClientId
    from relay_client.verbs.verb import Session

Perform = Callable[[Verb], Awaitable[Answer]]

CHECK_AFTER = 2.0
"""Seconds without an answer of a running relay-client until it is checked whether it is suspended."""

logger = logging.getLogger(__name__)


def ask(arguments: argparse.Namespace, request: Verb) -> int:
    """Perform a verb, print the answer, and return the exit status.

    Raises:
        RelayDebugError: the verb has failed, completely or in part.
    """
    answer = perform_once(arguments, request)
    if answer is None:
        if request.cancelled:
            print(request.cancelled, file=sys.stderr)
        return INTERRUPTED
    print(json.dumps(answer.data, indent=2) if arguments.json else answer.text, flush=True)
    if answer.error:
        raise RelayDebugError(answer.error, hint=answer.hint)
    if hint := answer.hint or answer.jobs_hint:
        print(f"hint: {escape_controls(hint)}", file=sys.stderr)
    return answer.status


def perform_once(arguments: argparse.Namespace, request: Verb) -> Answer | None:
    """Perform a verb, and return the answer, or None after Ctrl-C.

    Raises:
        RelayDebugError: the verb has failed.
    """
    answer: Answer | None = None  # not lost if closing the tunnels is interrupted

    async def run() -> None:
        nonlocal answer
        async with performing(arguments) as perform:
            answer = await perform(request)

    run_quietly(arguments, run())
    return answer


@contextlib.asynccontextmanager
async def performing(arguments: argparse.Namespace) -> AsyncIterator[Perform]:
    """Return, during an `async with` block, what performs verbs.

    Raises:
        NoClient: `--client` names no running relay-client.
        UsageError: several relay-clients are running, and the command line and the environment select none of them.
    """
    async with contextlib.AsyncExitStack() as stack:
        client = await find_client(arguments, stack)
        session: Session | None = None

        async def perform(request: Verb) -> Answer:
            nonlocal client, session
            if client is not None and request.name in client.about.verbs:
                import asyncio

                from relay_client.control.client import ClientExited
                from relay_core.net.tasks import TaskSet

                try:
                    async with TaskSet() as background:
                        background.spawn(_warn_if_suspended(client), name="check the relay-client")
                        answer: Answer = await client.request(request)
                except asyncio.CancelledError:
                    if request.cancelled:
                        await client.cancel(request.name)
                    raise
                except ClientExited:
                    client = None
                    if request.changes_job:  # it may have been performed already
                        raise
                else:
                    return answer
            if session is None:
                session = await _own_session(arguments, stack)
            return await session.perform(request)

        yield perform


async def _warn_if_suspended(client: ControlClient) -> None:
    """Log a warning if a relay-client that has not answered for some seconds does not greet another connection."""
    import asyncio

    await asyncio.sleep(CHECK_AFTER)
    with contextlib.suppress(OSError):  # it has exited, which the request reports
        try:
            await (await client.connect(client.address)).close()
        except RelayDebugError as error:
            logger.warning("%s", error)


async def _own_session(arguments: argparse.Namespace, stack: contextlib.AsyncExitStack) -> Session:
    from relay_client.verbs.verb import Session

    logger.debug("no running relay-client can do this: connecting to the agents")
    tunnels = await stack.enter_async_context(await make_tunnels(arguments))
    if getattr(arguments, "watch", False):
        tunnels.keep_searching()
    return Session(tunnels)


async def find_client(arguments: argparse.Namespace, stack: contextlib.AsyncExitStack) -> ControlClient | None:
    """Return the running relay-client to use, connected while `stack` is open; None if there is none.

    Without `--hc`, `arguments` get its hybrid connection, which the rest of the command needs too.

    Raises:
        NoClient, UsageError: as of `performing`.
    """
    from relay_client.control.client import running_clients

    found = await stack.enter_async_context(running_clients())
    if arguments.client:
        chosen = only_client(clients_named(found, arguments.client))
    elif found:
        matching, hc = clients_on(found, arguments)
        if not matching:
            return None
        chosen = matching[0] if hc else only_client(matching)
    else:
        return None
    arguments.hc = arguments.hc or chosen.about.hc
    chosen.on_log = lambda text: logger.warning("%s", text)
    logger.debug("using the running relay-client %s (pid %d)", chosen.about.id, chosen.about.pid)
    return chosen


def clients_on(
    clients: Sequence[ControlClient], arguments: argparse.Namespace
) -> tuple[list[ControlClient], str | None]:
    """Return the relay-clients on the hybrid connection that command line or environment select, and its name, or None.

    If they select none, return all relay-clients. A connection string that cannot be used, such as one of a whole
    namespace, selects none: a running relay-client needs no other.
    """
    namespace, hc = None, _path(arguments.hc)
    with contextlib.suppress(ConfigurationError):
        namespace, hc = _wanted(arguments)

    def is_on(about: ClientId) -> bool:
        return namespace in {None, about.namespace} and hc in {None, about.hc}

    return [client for client in clients if is_on(client.about)], hc


def _path(hc: str | None) -> str | None:
    """Return the name of a hybrid connection without that of its family."""
    from relay_core.hyco.family import FamilyName

    return FamilyName.parse(hc).path if hc else None


def _wanted(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """Return the namespace and the hybrid connection that command line or environment select; None if they do not.

    Neither Key Vault nor Entra ID is asked, so only a local connection string selects both.
    """
    from relay_client.control.client import namespace_of
    from relay_core.access_settings import NAMESPACE_VARIABLE
    from relay_core.auth.sources import choose, local_sources
    from relay_core.hyco.address import Endpoint, parse_namespace

    settings = access_settings(arguments)
    hc = _path(settings.hc)
    source = choose(local_sources(settings, os.environ))
    is_remote = settings.connection_string_secret or settings.namespace
    if source is not None and source.read is not None and (source.explicit or not is_remote):
        endpoint = source.read().parse(source.name, settings.hc).endpoint()
        return namespace_of(endpoint), endpoint.path
    if name := settings.namespace or os.environ.get(NAMESPACE_VARIABLE):
        return namespace_of(Endpoint(*parse_namespace(name), hc or "hc")), hc
    return None, hc
