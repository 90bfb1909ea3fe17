"""`relay-client push`: replaces the code of running ranks with a local file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
from relay_core.errors import RelayDebugError
from relay_core.value_parsers import named, parse_duration

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.push.deliver import Outcome

__all__ = ["add_parser"]

DEFAULT_TIMEOUT = "60s"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "push",
        run,
        summary="replace the code of running ranks with a local file",
        description="Compiles a local Python file in all ranks. If this succeeds in every rank, replaces the code of "
        "the file's functions and methods, at the same step in all ranks; variables keep their values. Prints what "
        "cannot be replaced. The job must have been started with --debug-allow-edit; files on its nodes are not "
        "changed.",
    )
    parser.add_argument("file", metavar="FILE", help="a Python file on this machine")
    add_ranks(parser)
    parser.add_argument(
        "--as",
        dest="remote",
        default=None,
        metavar="PATH",
        help="path of the file on the node, absolute or relative to the directory in which the job was started "
        "(default: the absolute path of FILE or, if the job has loaded no such file, its path relative to the current "
        "directory)",
    )
    parser.add_argument(
        "--timeout",
        default=DEFAULT_TIMEOUT,
        metavar="TIME",
        help=f"how long to wait until all ranks are at the same step (default: {DEFAULT_TIMEOUT})",
    )
    parser.add_argument(
        "--now",
        action="store_true",
        default=False,
        help="replace the code in each rank immediately, without waiting until all ranks are at the same step",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        default=False,
        help="keep running, and push the file whenever it is saved; print one line for each push",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was replaced."""
    from relay_client.push.deliver import read_source
    from relay_client.push.paths import node_paths

    chosen_ranks(arguments)  # checked here, because its error names the option
    with named("--timeout"):
        seconds = parse_duration(arguments.timeout)
    path = Path(arguments.file)
    read_source(path)  # an error stops the command before it connects
    *paths, remote = (arguments.remote,) if arguments.remote else node_paths(path)
    pushes = _Pushes(arguments, path, remote, paths, seconds)
    quiet_logging(arguments)
    return run_with_tunnels(arguments, pushes.on_each_save if arguments.watch else pushes.once)


@dataclass(frozen=True)
class _Pushes:
    """One push of a file, or one push each time the file is saved."""

    arguments: argparse.Namespace
    path: Path
    """The local file."""
    remote: str
    """The file on the node."""
    paths: Sequence[str]
    """Other paths at which it may be there; they are tried first."""
    seconds: float

    async def once(self, tunnels: Tunnels) -> None:
        """Push the file, and print the result."""
        from relay_client.push.render import as_object, show_outcome

        async with tunnels:
            await tunnels.discover_all()
            outcome = await self._push(tunnels)
        as_json = self.arguments.json
        print(json.dumps(as_object(outcome), indent=2) if as_json else show_outcome(self.arguments.file, outcome))
        if outcome.failed:
            raise RelayDebugError("the code was not replaced in every rank", hint="push the file again")

    async def on_each_save(self, tunnels: Tunnels) -> None:
        """Push the file whenever it is saved, until cancelled; print one line for each push."""
        from relay_client.push.saves import FileState, on_each_save

        known = FileState.of(self.path)
        async with tunnels:
            await tunnels.discover_all()
            tunnels.keep_searching()
            print(f"watching {self.arguments.file}; press Ctrl-C to stop", file=sys.stderr, flush=True)
            await on_each_save(self.path, known, lambda: self._push_saved(tunnels))

    async def _push_saved(self, tunnels: Tunnels) -> None:
        """Push the file, and print the result or the error; the push after a later save may succeed."""
        from relay_client.push.render import as_object, show_briefly

        name = self.arguments.file
        found: dict[str, object]
        try:
            outcome = await self._push(tunnels)
        except RelayDebugError as error:
            text, found = f"{name}: {error}", {"error": error.sentence, "hint": error.hint}
        else:
            text, found = show_briefly(name, outcome), as_object(outcome)
        line = json.dumps({"time": time.time(), **found}) if self.arguments.json else f"{time.strftime('%X')} {text}"
        print(line, flush=True)

    async def _push(self, tunnels: Tunnels) -> Outcome:
        from relay_client.push.deliver import push_file, read_source

        source, ranks = read_source(self.path), self.arguments.ranks
        waits = not self.arguments.now
        return await push_file(
            tunnels, self.remote, source, ranks=ranks, seconds=self.seconds, waits=waits, paths=self.paths
        )
