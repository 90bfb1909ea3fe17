"""`relay-client doctor`: checks each stage from this machine to the process to debug."""

from __future__ import annotations

import argparse

from relay_client.cli.common import PORTS, Commands, add_command, add_folder, add_json, add_ranks
from relay_core.program.options import access_settings
from relay_core.value_parsers import named


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        run,
        summary="check the connection from this machine to the job",
        description="Checks the configuration, proxy, host name, port, certificate, clock, token, Send right, hybrid "
        "connection, listener, tunnel key, agent, target and launch.json. Prints what to do about each failure. The "
        "exit status is 0 if no check fails; otherwise, it is the exit code of the first failure.",
    )
    add_json(parser)
    add_ranks(parser)
    text = "local ports that launch.json must contain (default: those of the registered processes)"
    parser.add_argument(*PORTS, default=None, metavar="LIST", help=text)
    add_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the checks, print the results and return the exit status."""
    from relay_client.doctor import examine
    from relay_client.ui.text import parse_chosen_ranks, parse_ports
    from relay_core.program.explain import run_checks

    with named("--ports"):
        ports = parse_ports(arguments.ports) if arguments.ports else None
    with named("--ranks"):
        ranks = parse_chosen_ranks(arguments.ranks)
    checks = examine(access_settings(arguments), ranks=ranks, ports=ports, folder=arguments.folder.absolute())
    return run_checks(arguments, checks)
