"""`relay-agent doctor`: checks, from inside a step, everything that the step's agent will need."""

from __future__ import annotations

import argparse
import json

from relay_agent.cli.common import Commands, explain
from relay_agent.settings.model import DEFAULT_PORT
from relay_core.program.console import log_errors_only
from relay_core.program.options import access_settings, add_access_options, argument_type
from relay_core.value_parsers import parse_port

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="check the connection from this node to the relay",
        description="With the settings that a job on this node would use, checks everything that debugging needs: the "
        "configuration, proxy, host name, port, certificate, clock, private endpoint, token, Listen right, hybrid "
        "connection, listener, tunnel key, debugpy and rank. Prints what to do about each failure. The exit status is "
        "0 if no check fails; otherwise, it is the exit code of the first failure.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--port",
        type=argument_type(parse_port),
        default=DEFAULT_PORT,
        metavar="PORT",
        help="logical port of rank 0 (default: %(default)s)",
    )
    add_access_options(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the checks, print the results and return the exit status."""
    import asyncio

    from relay_agent.doctor import examine
    from relay_core.diagnosis.checks import as_json, as_text

    if arguments.explain_auth:
        return explain(arguments)
    if not arguments.verbose:
        log_errors_only()
    examination = asyncio.run(examine(access_settings(arguments), port=arguments.port))
    if arguments.json:
        print(json.dumps(as_json(examination.results, examination.exit_code), indent=2))
    else:
        print(as_text(examination.results))
    return examination.exit_code
