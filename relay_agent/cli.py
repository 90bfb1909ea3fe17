"""The `relay-agent` command."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from relay_core.console import configure_logging, run_program

__all__ = ["main", "run"]

PROGRAM = "relay-agent"
logger = logging.getLogger(__name__)


def run() -> None:
    """Entry point of the console script."""
    sys.exit(run_program(PROGRAM, main))


def main(argv: list[str]) -> int:
    """Run one command and return its exit status; see `relay_core.errors` for the codes."""
    arguments = _parser().parse_args(argv)
    configure_logging(PROGRAM, verbose=arguments.verbose)
    status: int = arguments.command(arguments)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Connects programs on this machine to relay-client through a hybrid connection."
    )
    parser.add_argument("--verbose", action="store_true", help="also log what only developers of relay-debug need")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="offer local ports to clients until stopped",
        description="Offers ports of this machine, and only those, to the clients of one hybrid connection.",
        epilog="The connection string comes from --connection-string-file, RELAY_CONNECTION_STRING or "
        "RELAY_CONNECTION_STRING_FILE; it needs the Listen right.",
    )
    serve.add_argument("--hc", metavar="NAME", help="hybrid connection; default: EntityPath of the connection string")
    serve.add_argument(
        "--port",
        action="append",
        required=True,
        metavar="PORT[:LOCAL]",
        help="port to offer; clients ask for PORT, the program listens on 127.0.0.1:LOCAL (default: PORT); repeatable",
    )
    serve.add_argument(
        "--dap", action="store_true", help="the ports are debugpy's: connect debuggers only, and never probe them"
    )
    _add_connection_arguments(serve)
    serve.set_defaults(command=_serve)

    attend = commands.add_parser("attend", description="Used by relay_agent inside a job; reads its orders on stdin.")
    attend.set_defaults(command=_attend)
    return parser


def _add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connection-string-file", metavar="FILE", help="file (mode 0600) with the connection string")
    parser.add_argument(
        "--connection-string", metavar="TEXT", help="the connection string itself; other users can see it in 'ps'"
    )
    parser.add_argument("--ca-file", metavar="FILE", help="also trust this CA (default: RELAY_CA_FILE)")


def _serve(arguments: argparse.Namespace) -> int:
    from relay_agent.agent import Agent
    from relay_agent.target import parse_targets
    from relay_core.auth import credential_from_connection_string, find_connection_string
    from relay_core.net.run import run_until_stopped
    from relay_core.net.tls import client_tls

    targets = parse_targets(arguments.port, dap_only=arguments.dap)
    if arguments.connection_string:
        logger.warning("--connection-string shows the key to every user of this machine; use --connection-string-file")
    found = find_connection_string(
        text=arguments.connection_string, file=arguments.connection_string_file, hc=arguments.hc
    )
    agent = Agent(
        found.endpoint(),
        credential_from_connection_string(found),
        targets,
        tunnel_key=found.tunnel_key,
        tls=client_tls(arguments.ca_file),
    )
    return run_until_stopped(agent.run())


def _attend(_arguments: argparse.Namespace) -> int:
    from relay_agent.attend import attend

    asyncio.run(attend())
    return 0
