"""`relay-client push`: replaces the code of running ranks with a local file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from relay_client.cli.common import add_flag, run_quietly
from relay_client.cli.inspection.asking import Perform, ask, performing
from relay_client.cli.inspection.verb_command import VerbCommand
from relay_client.verbs.verb import Verb
from relay_core.errors import Interrupted, RelayDebugError
from relay_core.foreign import escape_controls


class PushCommand(VerbCommand):
    """Adds and performs the command."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add `--as` and `--watch`."""
        parser.add_argument(
            "--as",
            dest="remote",
            default=None,
            metavar="PATH",
            help="path of the file on the node, absolute or relative to the directory in which the job was started "
            "(default: the absolute path of FILE or, if the job has loaded no such file, its path relative to the "
            "current directory)",
        )
        text = "keep running, and push the file whenever it is saved; print one line for each push"
        add_flag(parser, "--watch", text)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print what was replaced."""
        from relay_client.push.deliver import node_paths, read_source

        path, name = Path(arguments.file), arguments.file
        read_source(path, name)
        *paths, remote = (arguments.remote,) if arguments.remote else node_paths(path)
        request = self.request(arguments, file=str(path.absolute()), remote=remote, paths=tuple(paths), shown=name)
        return _push_each_save(arguments, path, request) if arguments.watch else ask(arguments, request)


def _push_each_save(arguments: argparse.Namespace, path: Path, request: Verb) -> int:
    """Push the file whenever it is saved, until Ctrl-C; print one line for each push."""
    from relay_client.push.saves import on_each_save
    from relay_core.program.file_state import FileState

    known = FileState.of(path)

    async def run() -> None:
        async with performing(arguments) as perform:
            print(f"watching {arguments.file}; press Ctrl-C to stop", file=sys.stderr, flush=True)
            await on_each_save(path, known, lambda: _push_saved(perform, request, arguments))

    return run_quietly(arguments, run())


async def _push_saved(perform: Perform, request: Verb, arguments: argparse.Namespace) -> None:
    """Push the file, and print the result or the error; the push after a later save may succeed."""
    from relay_client.push.render import briefly

    found: Any
    try:
        answer = await perform(request)
    except Interrupted:  # by Ctrl-C, which ends the command
        raise
    except RelayDebugError as error:
        text, found = f"{arguments.file}: {escape_controls(str(error))}", {"error": error.sentence, "hint": error.hint}
    else:
        text, found = briefly(answer.text), answer.data
    line = json.dumps({"time": time.time(), **found}) if arguments.json else f"{time.strftime('%X')} {text}"
    print(line, flush=True)
