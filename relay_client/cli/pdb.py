"""`relay-client pdb`: debugs one rank at a command prompt."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_flag, add_port, add_timeout, make_tunnels, quiet_logging

if TYPE_CHECKING:
    from relay_client.dap import DapClient
    from relay_client.pdb.debugger import DebugConnection

LOCKED = 423
"""The HTTP status for a locked resource, used here because the agent's refusal of a stream contains no status."""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "pdb",
        run,
        summary="debug a rank at a prompt, without an editor",
        description="Attaches to a rank, pauses it and accepts pdb commands; the job continues when you quit.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("number", nargs="?", type=int, default=None, metavar="RANK", help="global rank (default: 0)")
    which.add_argument("--rank", "--ranks", type=int, default=0, metavar="RANK", help="same as RANK")
    add_port(which, "logical port of the process; use it if several jobs have this rank")
    add_timeout(parser, "time to wait for the process to register, such as 90s, 10m or 2h (default: %(default)s)")
    add_flag(parser, "--no-stop", "do not pause when attaching; run until a breakpoint is hit or you press Ctrl-C")
    parser.add_argument(
        "-b",
        "--break",
        dest="breakpoints",
        action="append",
        default=[],
        metavar="FILE:LINE",
        help="set a breakpoint; repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the prompt until the user quits.

    Raises:
        RelayDebugError: attaching failed, for example because another debugger holds the rank.
    """
    from relay_client.pdb.prompt import run_pdb
    from relay_client.ports.rank_port import process_name
    from relay_core.errors import Rejected
    from relay_core.net.session.stream import StreamBroken
    from relay_core.tunnel.outcomes import ResetCode

    quiet_logging(arguments)
    rank = arguments.rank if arguments.number is None else arguments.number
    name = process_name(rank, arguments.port)
    try:
        return run_pdb(
            _session(arguments, rank, arguments.port),
            title=name,
            stop=not arguments.no_stop,
            breakpoints=arguments.breakpoints,
        )
    except StreamBroken as error:
        if error.reset is not ResetCode.HELD:
            raise
        release = f"relay-client release {rank if arguments.port is None else f'--port {arguments.port}'}"
        ways = "enters q in 'relay-client pdb', or ends the editor's session, for example by"
        hint = f"to free it, that user {ways} '{release}'"
        raise Rejected(f"{name} is {error.reason}", hint=hint, status=LOCKED, reason=error.reason) from None


@contextlib.asynccontextmanager
async def _session(arguments: argparse.Namespace, rank: int, port: int | None) -> AsyncIterator[DebugConnection]:
    """Connect to the debugger of the process with a rank, or with a logical port, once the process has registered.

    Raises:
        RelayDebugError: on entering: the relay or credentials are unusable, another user is debugging the process, or
            there is no such process.
    """
    from relay_client.agents.roster import Destination
    from relay_client.agents.wait_for_ending import how_process_ended
    from relay_client.dap import DapClient
    from relay_client.hang.waits import Waits
    from relay_client.pdb.debugger import DebugConnection
    from relay_client.ports.rank_port import single_claim, wait_for_claims
    from relay_client.ranks.view import replaced_text
    from relay_core.agent_api.announcement import State
    from relay_core.foreign import escape_controls
    from relay_core.net.tasks import TaskSet

    def show(line: str) -> None:
        print(escape_controls(line), file=sys.stderr, flush=True)

    async with await make_tunnels(arguments) as tunnels:
        tunnels.leads_to = lambda _target: None  # the log must not propose an editor
        claims = await wait_for_claims(tunnels, rank, port, show, within=arguments.timeout)
        claim = single_claim(claims, hint=f"choose one, as in 'relay-client pdb --port {claims[0].target.port}'")
        target = claim.target

        async def connect() -> DapClient:
            return DapClient(await tunnels.open(Destination(target.port)))

        def waits() -> str:
            return (tunnels.roster.waits or {}).get(target.port, "")

        async with await connect() as client, TaskSet() as background:
            background.spawn(Waits(tunnels).keep(), name="find out which ranks wait")
            is_crashed = target.state is State.CRASHED
            how_ended = functools.partial(how_process_ended, tunnels, (claim.agent.id, target.port, target.pid))
            cwd = target.cwd or claim.agent.cwd
            replaced, outage = replaced_text(target), functools.partial(tunnels.outage, claim.agent.id)
            yield DebugConnection(client, connect, is_crashed, cwd, how_ended, replaced, waits, outage)
