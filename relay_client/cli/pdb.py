"""`relay-client pdb`: debugs one rank at a command prompt."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_flag, add_port, make_tunnels, quiet_logging

if TYPE_CHECKING:
    from relay_client.agents.roster import Claim
    from relay_client.agents.tunnels import Tunnels
    from relay_client.dap import DapClient
    from relay_client.pdb import DebugConnection
    from relay_core.errors import RelayDebugError

LOCKED = 423
"""The HTTP status for a locked resource, used here because the agent's refusal of a stream contains no status."""


@dataclass(frozen=True)
class _Wanted:
    """The process to debug, named by its rank or by its logical port."""

    rank: int
    port: int | None = None

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.port is None else f"port {self.port}"


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
    from relay_client.pdb import run_pdb
    from relay_core.errors import Rejected
    from relay_core.net.session.stream import StreamBroken
    from relay_core.tunnel.outcomes import ResetCode

    quiet_logging(arguments)
    rank = arguments.rank if arguments.number is None else arguments.number
    wanted = _Wanted(rank, arguments.port)
    try:
        return run_pdb(
            _session(arguments, wanted),
            title=str(wanted),
            stop=not arguments.no_stop,
            breakpoints=arguments.breakpoints,
        )
    except StreamBroken as error:
        if error.reset is not ResetCode.HELD:
            raise
        release = f"relay-client release {rank if wanted.port is None else f'--port {wanted.port}'}"
        hint = f"if you are that user, run '{release}' on that machine; otherwise, ask the user to disconnect"
        raise Rejected(f"{wanted} is {error.reason}", hint=hint, status=LOCKED, reason=error.reason) from None


@contextlib.asynccontextmanager
async def _session(arguments: argparse.Namespace, wanted: _Wanted) -> AsyncIterator[DebugConnection]:
    """Connect to the debugger of a process once the process has registered.

    Raises:
        RelayDebugError: on entering: the relay or credentials are unusable, or another user is debugging the process.
    """
    from relay_client.agents.endings import how_process_ended
    from relay_client.agents.roster import Destination
    from relay_client.dap import DapClient
    from relay_client.pdb import DebugConnection
    from relay_client.ports.rank_port import single_claim
    from relay_client.ranks.view import replaced_text
    from relay_core.agent_api.announcement import State
    from relay_core.foreign import escape_controls

    async with await make_tunnels(arguments) as tunnels:
        claims = await _wait_for_claims(tunnels, wanted)
        claim = single_claim(claims, hint=f"choose one, as in 'relay-client pdb --port {claims[0].target.port}'")
        target = claim.target

        async def connect() -> DapClient:
            return DapClient(await tunnels.open(Destination(target.port)))

        async with await connect() as client:
            if line := replaced_text(target):
                print(escape_controls(line), file=sys.stderr, flush=True)
            is_crashed = target.state is State.CRASHED
            how_ended = functools.partial(how_process_ended, tunnels, (claim.agent.id, target.port, target.pid))
            yield DebugConnection(client, connect, is_crashed, target.cwd or claim.agent.cwd, how_ended)


async def _wait_for_claims(tunnels: Tunnels, wanted: _Wanted) -> list[Claim]:
    """Return the targets with the wanted rank or port once there is one; until then, show the reason on stderr."""
    import asyncio

    from relay_client.ports.rank_port import claims_of, registered_targets, waiting_for_port, waiting_for_rank
    from relay_core.errors import RelayDebugError
    from relay_core.foreign import escape_controls

    is_waiting = False

    def describe(why: RelayDebugError) -> str:
        registered = registered_targets(tunnels)
        if wanted.port is None:
            return waiting_for_rank(wanted.rank, registered, why, command="pdb")
        return waiting_for_port(wanted.port, registered, why)

    def show(why: RelayDebugError) -> None:
        nonlocal is_waiting
        is_waiting = True
        print(escape_controls(describe(why)), file=sys.stderr, flush=True)

    def find() -> list[Claim] | None:
        return claims_of(tunnels, rank=wanted.rank, port=wanted.port) or None

    try:
        claims = await tunnels.search.wait_for(find, show, describe)
        if wanted.port is None:  # another job may have the same rank
            with contextlib.suppress(RelayDebugError):
                await tunnels.discover_all()
        return find() or claims
    except asyncio.CancelledError:
        if is_waiting:
            print(f"stopped waiting for {wanted}", file=sys.stderr, flush=True)
        raise
