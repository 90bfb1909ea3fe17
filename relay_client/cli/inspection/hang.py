"""`relay-client hang`: shows in which collective operation a job is waiting, and for which ranks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_json, quiet_logging, run_with_tunnels
from relay_client.cli.inspection.asking import add_client, ask, show
from relay_client.ui.text import parse_chosen_ports
from relay_client.verbs.hang import Hang, as_answer
from relay_client.verbs.verb import check
from relay_core.errors import UsageError
from relay_core.program.options import argument_type
from relay_core.value_parsers import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay_client.agents.tunnels import Tunnels
    from relay_client.hang.verdict import JobVerdict

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "hang",
        run,
        summary="show which ranks a collective operation is waiting for",
        description="Shows, for each process group, the collective operation in which ranks are waiting, the ranks "
        "that have entered it, and where the missing ranks are. Exits with status 16 if ranks are waiting, or with "
        "status 0 otherwise.",
    )
    parser.add_argument(
        "--ports",
        default="",
        metavar="RANGE",
        help="report only jobs with a rank on these logical ports, such as 5678-5685",
    )
    parser.add_argument(
        "--watch",
        type=argument_type(_parse_patience),
        default=None,
        metavar="TIME",
        help="keep running, and print the report whenever no rank has made progress for TIME, such as 120 or 2m",
    )
    add_client(parser)
    add_json(parser)


def _parse_patience(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise UsageError(f"invalid duration: '{text}'", hint="use a duration above 0, such as 2m")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict.

    Raises:
        UsageError: `--watch`, which always connects to the agents itself, is combined with `--client`.
    """
    request = Hang(arguments.ports)
    if arguments.watch is None:
        return ask(arguments, request)
    if arguments.client:
        raise UsageError("--watch cannot use a running relay-client", hint="omit --client")
    check(request, lambda field: f"--{field}")
    ports = parse_chosen_ports(arguments.ports)

    async def watch_jobs(tunnels: Tunnels) -> None:
        from relay_client.hang.examine import watch

        async with tunnels:
            await tunnels.discover_all()
            await watch(tunnels, ports, arguments.watch, lambda due: _show(due, as_json=arguments.json))

    quiet_logging(arguments)
    return run_with_tunnels(arguments, watch_jobs)


def _show(verdicts: Sequence[JobVerdict], *, as_json: bool) -> None:
    show(as_answer(verdicts), as_json=as_json)
