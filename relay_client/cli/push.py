"""`relay-client push`: replace the code of running ranks by that of a local file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from relay_client.cli.common import (
    Commands,
    add_command,
    add_json,
    add_ranks,
    chosen_ranks,
    quiet_logging,
    run_with_tunnels,
)
from relay_core.errors import RelayDebugError, UsageError
from relay_core.values import named, parse_duration

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

__all__ = ["add_parser"]

DEFAULT_TIMEOUT = "60s"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "push",
        run,
        summary="replace the code of running ranks by that of a local file",
        description="Compiles a local Python file in all ranks and, if it compiles in all of them, replaces the code "
        "of their functions and methods at the same step; all variables keep their values. Prints what cannot be "
        "replaced. The job must have been started with --debug-allow-edit; files on its nodes are not changed.",
    )
    parser.add_argument("file", metavar="FILE", help="a Python file on this machine")
    add_ranks(parser)
    parser.add_argument(
        "--as",
        dest="remote",
        default=None,
        metavar="PATH",
        help="the file on the node, relative to the job's start directory or absolute (default: FILE, relative to "
        "the current directory)",
    )
    parser.add_argument(
        "--timeout",
        default=DEFAULT_TIMEOUT,
        metavar="TIME",
        help=f"how long to wait until all ranks are at the same step (default: {DEFAULT_TIMEOUT})",
    )
    parser.add_argument(
        "--now", action="store_true", default=False, help="replace the code in each rank at once, not at the same step"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was replaced."""
    from relay_client.push.deliver import push_file, read_source
    from relay_client.push.render import as_object, show_outcome

    chosen_ranks(arguments)  # an error is of this option
    with named("--timeout"):
        seconds = parse_duration(arguments.timeout)
    source, remote = read_source(Path(arguments.file)), arguments.remote or _remote(Path(arguments.file))

    async def push(tunnels: Tunnels) -> None:
        async with tunnels:
            await tunnels.discover_all()
            outcome = await push_file(
                tunnels, remote, source, ranks=arguments.ranks, seconds=seconds, waits=not arguments.now
            )
        print(json.dumps(as_object(outcome), indent=2) if arguments.json else show_outcome(arguments.file, outcome))
        if outcome.failed:
            raise RelayDebugError("the code was not replaced in all ranks", hint="push the file again")

    quiet_logging(arguments)
    return run_with_tunnels(arguments, push)


def _remote(path: Path) -> str:
    """Return the path relative to the current directory, which corresponds to the job's start directory."""
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        raise UsageError(
            f"{path} is not in the current directory", hint="name the file on the node with --as"
        ) from None
