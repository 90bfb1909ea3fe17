"""`relay-client hang`: shows in which collective operation a job is waiting, and for which ranks."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_json, quiet_logging, run_with_tunnels
from relay_client.number_lists import parse_ports
from relay_client.ui.text import format_ports
from relay_core.errors import NoListener, UsageError
from relay_core.exit_codes import HANG_FOUND
from relay_core.program.options import argument_type
from relay_core.value_parsers import named, parse_duration

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
    add_json(parser)


def _parse_patience(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise UsageError(f"invalid duration: '{text}'", hint="use a duration above 0, such as 2m")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict."""
    with named("--ports"):
        ports = parse_ports(arguments.ports) if arguments.ports else None
    status = 0

    async def show(tunnels: Tunnels) -> None:
        nonlocal status
        from relay_client.hang.examine import examine
        from relay_client.hang.watch import watch

        async with tunnels:
            await tunnels.discover_all()
            if arguments.watch is not None:
                await watch(tunnels, ports, arguments.watch, lambda found: _show(found, as_json=arguments.json))
                return
            verdicts = await examine(tunnels, ports)
        if not verdicts:
            wanted = f" with {format_ports(ports)}" if ports else ""
            hint = "run 'relay-client targets' to list the registered processes"
            raise NoListener(f"no process found{wanted}", hint=hint)
        _show(verdicts, as_json=arguments.json)
        status = HANG_FOUND if any(verdict.is_hanging for verdict in verdicts) else 0

    quiet_logging(arguments)
    return run_with_tunnels(arguments, show) or status


def _show(verdicts: Sequence[JobVerdict], *, as_json: bool) -> None:
    from relay_client.hang.output import verdict_as_object, verdict_as_text

    print(json.dumps(verdict_as_object(verdicts), indent=2) if as_json else verdict_as_text(verdicts), flush=True)
