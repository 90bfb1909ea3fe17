"""`relay-client watch`: the command of the verb `watch`, and the options that limit what it reports."""

from __future__ import annotations

import argparse
import re
import secrets
from pathlib import Path, PurePath
from typing import cast

from relay_client.cli.common import parse_positive_duration, run_quietly
from relay_client.cli.inspection.verb_command import VerbCommand
from relay_client.verbs.watch import ACTIONS, CAPTURE, HOLD, Watch, parse_place
from relay_core.errors import UsageError
from relay_core.program.options import argument_type


class WatchCommand(VerbCommand):
    """Adds and performs the command."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that limit what is reported."""
        number, lasts = argument_type(_positive), argument_type(parse_positive_duration)
        only_if = "report only if this expression is true"
        every = "of the times that the condition is true, report the first one, and then only every Nth"
        parser.add_argument("--when", default="", metavar="CONDITION", help=only_if)
        parser.add_argument("--every", type=number, default=1, metavar="N", help=every)
        hits = "end after N hits of all ranks (default with nan, capture and hold: one in each)"
        parser.add_argument("--hits", type=number, default=0, metavar="N", help=hits)
        then = (
            f"{ACTIONS[0]} (default), {CAPTURE}: show the variables, too, or {HOLD}: stop and wait for a debugger, too"
        )
        parser.add_argument("--then", choices=ACTIONS, default=ACTIONS[0], metavar="ACTION", help=then)
        parser.add_argument(
            "--for", dest="lasts", type=lasts, default="60m", metavar="TIME", help="end after TIME (default: 60m)"
        )
        parser.set_defaults(watch=True)  # the command keeps searching for agents

    def run(self, arguments: argparse.Namespace) -> int:
        """Print each hit until the watch ends; status 17 if none had a value, unless it was ended with Ctrl-C."""
        from relay_client.cli.inspection.watch_loop import WatchLoop

        limits = {name: getattr(arguments, name) for name in ("when", "every", "hits", "then", "lasts")}
        place = _node_place(arguments.place)
        request = cast("Watch", self.request(arguments, place=place, watch_id=secrets.token_hex(8), **limits))
        request.question()
        loop = WatchLoop(arguments, request, _doubt(arguments.place))
        return run_quietly(arguments, loop.run()) or loop.status


def _positive(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise UsageError(f"invalid number: '{text}'", hint="use a number from 1 to 999999999")
    return int(text)


def _doubt(place: str) -> str:
    """Return a sentence that reports that the file does not exist on this machine; "" if it exists."""
    name, line = parse_place(place)
    if not line:
        return ""
    file = Path(name)
    where = "on this machine" if file.is_absolute() else "in the current directory"
    return "" if file.exists() else f". {file} does not exist {where} either"


def _node_place(place: str) -> str:
    """Return a place as the nodes know it: a file below the current directory, which is the job's, is relative."""
    from relay_client.push.deliver import absolute_paths, node_paths

    file, line = parse_place(place)
    if not line:
        return place
    local, shown = absolute_paths(Path(file)), node_paths(Path(file))[-1]
    if shown in local:  # not below it: the path on the nodes, unless it begins at the current directory
        shown = local[0] if ".." in PurePath(file).parts else file
    return f"{shown}:{line}"
