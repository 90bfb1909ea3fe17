"""`relay-client attach`: starts the debuggers of the given ranks and opens their local ports.

If a relay-client is running on the same hybrid connection, that relay-client opens the ports; otherwise this command
forwards them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from relay_client.cli import common
from relay_client.cli.inspection.asking import clients_on
from relay_client.cli.running import only_client
from relay_client.ui.text import parse_ranks
from relay_client.verbs.targets import table_rows
from relay_core.errors import NoListener, RelayDebugError, TimedOut, UsageError
from relay_core.exit_codes import INTERRUPTED, SUCCESS
from relay_core.value_parsers import named

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.control.client import ControlClient
    from relay_client.control.messages import Attached
    from relay_client.control.state import ClientId
    from relay_client.ports.forwarder import Forwarder

logger = logging.getLogger(__name__)


def add_parser(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = common.add_command(
        commands,
        "attach",
        run,
        summary="start a rank's debugger and open its port",
        description="Starts debugpy in running processes and opens local ports for them. If a relay-client is already "
        "running on this hybrid connection, that relay-client opens the ports; otherwise, this command opens them and "
        "keeps them open until you press Ctrl-C.",
    )
    parser.add_argument("ranks", nargs="*", default=[], metavar="RANK", help="global rank or ranks, such as 3 or 4-5")
    parser.add_argument(
        "--rank", "--ranks", action="append", default=[], metavar="LIST", help="same as RANK; repeatable"
    )
    common.add_port(parser, "local port (default: the rank's logical port)")
    common.add_timeout(parser, "time to wait for the ranks to register, such as 90s, 10m or 2h (default: %(default)s)")
    common.add_json(parser)
    common.add_port_options(parser)
    common.add_quiet(parser)
    parser.set_defaults(keeps_running=True)


def run(arguments: argparse.Namespace) -> int:
    """Attach to the ranks.

    Raises:
        UsageError: no rank is given, or one local port is given for several ranks.
    """
    if not (texts := [*arguments.ranks, *arguments.rank]):
        raise UsageError(
            "no rank given",
            hint="give one, as in 'relay-client attach 3'; run 'relay-client targets' to list the ranks",
        )
    with named("RANK"):
        ranks = parse_ranks(",".join(texts))
    if arguments.port is not None and len(ranks) > 1:
        raise UsageError("--port requires a single rank", hint="omit it, or attach to one rank")
    has_attached = common.run_for_result(_attach_through_running(arguments, ranks))
    if has_attached is not False:
        return SUCCESS if has_attached else INTERRUPTED

    return common.run_until_stopped(_attach_all(ranks, arguments), closing=common.CLOSING_PORTS)


# Through a relay-client that is running:


async def _attach_through_running(arguments: argparse.Namespace, ranks: Sequence[int]) -> bool:
    """Have a running relay-client open the ports, and print them; return False if none is running.

    Raises:
        RelayDebugError: the relay-client cannot open a port.
    """
    from relay_client.control.client import running_clients

    async with running_clients() as found:
        if not found:
            return False
        clients, _hc = clients_on(found, arguments)
        if not clients:
            return False
        client = await _best(clients, ranks)
        for rank in ranks:
            attached = await _attach_in(client, rank, arguments.port, arguments.timeout)
            if arguments.json:
                _print_json(attached, client.about)
            else:
                held = f" once {attached.holder}, who holds the rank, has disconnected" if attached.holder else ""
                print(
                    f"rank {rank} on {attached.node}: attach to {attached.host}:{attached.local_port}{held} "
                    f"(relay-client {client.about.id}, pid {client.about.pid})",
                    flush=True,
                )
    return True


async def _attach_in(client: ControlClient, rank: int, port: int | None, within: float) -> Attached:
    """Have a running relay-client open a rank's port; if the rank has not registered, log this and wait for it."""
    from relay_client.control.messages import Attach, GetStatus
    from relay_client.ports.rank_port import missing_reason, registration_limit, waiting_text

    try:
        attached: Attached = await client.request(Attach(rank, local_port=port))
    except NoListener as error:
        status = await client.request(GetStatus())
        targets = [target for node in status.nodes for target in node.targets]
        reason = missing_reason(rank, None, targets, error)
        logger.info("%s", waiting_text(rank, None, reason, within=within))
        async with registration_limit(rank, None, within):
            attached = await client.request(Attach(rank, local_port=port, wait=True))
    return attached


async def _best(clients: Sequence[ControlClient], ranks: Sequence[int]) -> ControlClient:
    """Return the relay-client whose agents have the ranks.

    Raises:
        UsageError: relay-clients on several hybrid connections qualify.
    """
    from relay_client.control.messages import GetStatus

    knowing = []
    for client in clients:
        status = await client.request(GetStatus())
        known = {target.rank for node in status.nodes for target in node.targets}
        if known.issuperset(ranks):
            knowing.append(client)
    candidates = knowing or list(clients)
    if len({(client.about.namespace, client.about.hc) for client in candidates}) == 1:
        return candidates[0]
    return only_client(candidates, "--hc")


def _print_json(attached: Attached, client: ClientId | None = None) -> None:
    from relay_client.ranks.record import encode

    print(json.dumps({**encode(attached), "client": client.id if client else None}), flush=True)


# Without a running relay-client:


async def _attach_all(ranks: Sequence[int], arguments: argparse.Namespace) -> None:
    """Open a local port for each rank once it has registered, until cancelled.

    Args:
        ranks: Global ranks.
        arguments: The parsed command line.

    Raises:
        NoListener: no job can have one of the ranks.
        UsageError: a rank exists in several jobs.
        LocalPortInUse: a local port cannot be opened.
        RelayDebugError: the relay or the credentials are unusable.
    """
    from relay_client.agents.tunnels import may_register, no_process_error
    from relay_client.ports.forwarder import Forwarder
    from relay_client.ui.live_table import live_table
    from relay_core.net.tasks import run_together

    tunnels = await common.make_tunnels(arguments)
    forwarder = Forwarder(tunnels, [], allow_terminate=arguments.allow_terminate)
    tunnels.leads_to = lambda target: forwarder.leads_to(target.port) or (None if target.rank in ranks else False)

    async def attach_all() -> None:
        async with forwarder:
            with contextlib.suppress(RelayDebugError):  # waiting for the ranks raises those that last
                await tunnels.discover_all(waits=False)
            targets = [target for agent in tunnels.roster for target in agent.targets]
            possible = {target.rank for target in targets} | {rank for rank in ranks if may_register(targets, rank)}
            if impossible := set(ranks) - possible:  # before the port of another rank is open
                raise no_process_error(targets, sorted(impossible))
            tunnels.keep_searching()
            async with live_table(partial(table_rows, tunnels)):
                await run_together(*(_attach(tunnels, forwarder, rank, arguments) for rank in ranks))

    await common.run_controlled("attach", tunnels, forwarder, attach_all(), idle_exit=arguments.idle_exit)


async def _attach(tunnels: Tunnels, forwarder: Forwarder, rank: int, arguments: argparse.Namespace) -> None:
    """Forward the port of one rank until cancelled; print the port with `--json`.

    Raises:
        RelayDebugError: the rank cannot be debugged, or its local port cannot be opened.
    """
    import asyncio

    from relay_client.agents.tunnels import blocking_holder
    from relay_client.control.messages import Attached
    from relay_client.ports.forwarder import LOCAL_HOST
    from relay_client.ports.rank_port import how_to_attach, open_rank_port, single_claim, wait_for_claims, wake

    try:
        claims = await wait_for_claims(tunnels, rank, None, partial(logger.info, "%s"), within=arguments.timeout)
    except TimedOut as error:
        if not forwarder.ports:
            raise
        logger.warning("%s", error)  # the other ranks stay attached
        return
    claim = single_claim(claims)
    target, host = claim.target, claim.agent.host
    local = await open_rank_port(forwarder, claim, arguments.port)
    await wake(tunnels, claim)
    logger.info("%s (%s:%d)", how_to_attach(claim, local.port), LOCAL_HOST, local.port)
    if arguments.json:
        holder = blocking_holder(target)
        _print_json(Attached(target.port, local.port, LOCAL_HOST, is_new=True, rank=rank, node=host, holder=holder))
    await asyncio.Event().wait()
