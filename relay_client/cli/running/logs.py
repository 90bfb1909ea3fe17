"""`relay-client logs`: shows the log lines of the running relay-clients."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, run_with_clients
from relay_core.errors import UsageError
from relay_core.program.options import argument_type

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient
    from relay_client.control.messages import LogLine

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "logs",
        run,
        summary="show the log of a running relay-client",
        description="Shows the last log lines of the running relay-clients, even if their terminals have been closed.",
    )
    parser.add_argument("--follow", action="store_true", default=False, help="keep printing new lines until Ctrl-C")
    parser.add_argument(
        "--lines",
        type=argument_type(_parse_count),
        default=200,
        metavar="COUNT",
        help="number of lines to show (default: %(default)s)",
    )


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"invalid number of lines: '{text}'", hint="use a number, such as 50")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print the lines."""
    from relay_client.control.messages import LogLine, Logs
    from relay_core.net.tasks import run_together

    async def show(clients: Sequence[ControlClient]) -> None:
        async def show_one(client: ControlClient) -> None:
            name = client.about.id if len(clients) > 1 else ""
            found = await client.request(Logs(arguments.lines, arguments.follow))
            for line in found.lines:
                _print(line, client.about.id, name, as_json=arguments.json)
            if arguments.follow:
                async for event in client.events():
                    line = LogLine(event.time, event.level or "", event.text)
                    _print(line, client.about.id, name, as_json=arguments.json)

        await run_together(*(show_one(client) for client in clients))

    return run_with_clients(arguments, show)


def _print(line: LogLine, client: str, name: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"client": client, "time": line.time, "level": line.level, "text": line.text}), flush=True)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(line.time))
    level = "" if line.level == "info" else f"{line.level}: "
    print(f"{clock} {f'{name} ' if name else ''}{level}{line.text}", flush=True)
