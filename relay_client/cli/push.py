"""`relay-client push`: replaces the code of running ranks with a local file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from relay_client.cli.common import Commands, add_command, add_json, add_ranks, quiet_logging
from relay_client.cli.inspection.asking import Perform, add_client, ask, performing
from relay_client.verbs.push import Push
from relay_client.verbs.verb import check
from relay_core.errors import RelayDebugError
from relay_core.value_parsers import named, parse_duration

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
    add_client(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was replaced."""
    from relay_client.push.deliver import node_paths, read_source

    with named("--timeout"):
        seconds = parse_duration(arguments.timeout)
    path, name = Path(arguments.file), arguments.file
    *paths, remote = (arguments.remote,) if arguments.remote else node_paths(path)
    request = Push(
        str(path.absolute()), remote, arguments.ranks, seconds, now=arguments.now, paths=tuple(paths), shown=name
    )
    read_source(path, name)
    check(request, lambda field: f"--{field}")
    return _push_each_save(arguments, path, request) if arguments.watch else ask(arguments, request)


def _push_each_save(arguments: argparse.Namespace, path: Path, request: Push) -> int:
    """Push the file whenever it is saved, until Ctrl-C; print one line for each push."""
    from relay_client.push.saves import FileState, on_each_save
    from relay_core.program.run import run_until_stopped

    known = FileState.of(path)

    async def run() -> None:
        async with performing(arguments) as perform:
            print(f"watching {request.shown}; press Ctrl-C to stop", file=sys.stderr, flush=True)
            await on_each_save(path, known, lambda: _push_saved(perform, request, as_json=arguments.json))

    quiet_logging(arguments)
    return run_until_stopped(run())


async def _push_saved(perform: Perform, request: Push, *, as_json: bool) -> None:
    """Push the file, and print the result or the error; the push after a later save may succeed."""
    from relay_client.push.render import briefly

    found: Any
    try:
        answer = await perform(request)
    except RelayDebugError as error:
        text, found = f"{request.shown}: {error}", {"error": error.sentence, "hint": error.hint}
    else:
        text, found = briefly(answer.text), answer.data
    line = json.dumps({"time": time.time(), **found}) if as_json else f"{time.strftime('%X')} {text}"
    print(line, flush=True)
