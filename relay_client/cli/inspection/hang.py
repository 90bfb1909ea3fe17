"""`relay-client hang`: the command of the verb `hang`, and its option `--watch`, which performs the verb repeatedly."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from relay_client.cli.common import parse_positive_duration, run_quietly
from relay_client.cli.inspection.asking import ask, performing
from relay_client.cli.inspection.verb_command import VerbCommand
from relay_client.verbs.verb import Verb
from relay_core.program.options import argument_type


class HangCommand(VerbCommand):
    """Adds and performs the command."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add `--watch`."""
        parser.add_argument(
            "--watch",
            type=argument_type(parse_positive_duration),
            default=None,
            metavar="TIME",
            help="keep running, and print the report whenever no rank has made progress for TIME, such as 120 or 2m",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the verdict, or with `--watch`, each verdict on jobs that have begun to hang."""
        if arguments.watch is None:
            return ask(arguments, self.request(arguments))
        return run_quietly(arguments, _watch(arguments, self.request(arguments, once=True)))


async def _watch(arguments: argparse.Namespace, request: Verb) -> None:
    from relay_client.hang.examine import interval_for, watch
    from relay_client.hang.output import verdict_as_text

    async def look() -> Any:
        return (await perform(request)).data

    def report(found: Mapping[str, Any]) -> None:
        print(json.dumps(found, indent=2) if arguments.json else verdict_as_text(found), flush=True)

    jobs = f"the jobs on ports {arguments.ports}" if arguments.ports else "all jobs"
    times = f"every {interval_for(arguments.watch):g} s, to report those without progress for {arguments.watch:g} s"
    async with performing(arguments) as perform:
        print(f"checking collective operations of {jobs} {times}; press Ctrl-C to stop", file=sys.stderr, flush=True)
        await watch(look, arguments.watch, report)
