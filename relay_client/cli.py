"""The `relay-client` command."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from relay_core.auth.options import access_settings, add_access_options
from relay_core.console import configure_logging, print_error, run_program
from relay_core.errors import ConfigurationError, UsageError

__all__ = ["main", "run"]

PROGRAM = "relay-client"
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
        prog=PROGRAM,
        description="Makes 127.0.0.1:<port> on this machine the debugger port of a job on compute you cannot reach.",
        epilog="Without a command: forward --ports until stopped with Ctrl-C. The connection string comes from "
        "--connection-string-file, RELAY_CONNECTION_STRING, RELAY_CONNECTION_STRING_FILE or a Key Vault secret, and "
        "needs the Send right; with --namespace the identity needs the role Azure Relay Sender.",
    )
    parser.add_argument("--ports", metavar="LIST", help="local ports, as in 5678, 5678-5680 or 5678,5690")
    add_access_options(parser)
    parser.add_argument("--verbose", action="store_true", help="also log what only developers of relay-debug need")
    parser.set_defaults(command=_forward)

    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="see a breakpoint hit through a relay on this machine, without Azure",
        description="Starts a relay, a training job with its agent and a client on this machine, and debugs the job.",
    )
    demo.add_argument("--hold", action="store_true", help="start everything, then wait for your editor instead")
    demo.add_argument(
        "--chaos", action="store_true", help="cut the tunnel several times at the breakpoint, and go on stepping"
    )
    demo.add_argument("--verbose", action="store_true", help="also show what the programs print")
    demo.set_defaults(command=_demo)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from relay_client.demo import run_demo

    return run_demo(hold=arguments.hold, chaos=arguments.chaos, verbose=arguments.verbose)


def _forward(arguments: argparse.Namespace) -> int:
    from relay_client.forwarder import forward
    from relay_client.ports import parse_ports
    from relay_client.tunnels import CLIENT_GRACE, Tunnels
    from relay_core.auth import find_access
    from relay_core.net.run import run_until_stopped
    from relay_core.net.timers import tunnel_settings
    from relay_core.net.tls import client_tls

    if arguments.explain_auth:
        return _explain(arguments)
    if not arguments.ports:
        raise UsageError("no ports are named", hint="add --ports 5678, or see relay-client --help")
    ports = parse_ports(arguments.ports)
    settings, tls = access_settings(arguments), client_tls(arguments.ca_file)

    async def run() -> None:
        access = await find_access(settings, side="client", tls=tls)
        if access.tunnel_key is None:
            logger.warning(
                "no TunnelKey: the relay, and whoever holds its keys, can read and use what passes through; "
                "add ;TunnelKey=<32 bytes of base64> to the connection strings of both sides, or set RELAY_TUNNEL_KEY"
            )
        tunnels = Tunnels(
            access.endpoint,
            access.credential,
            tls,
            tunnel_key=access.tunnel_key,
            settings=tunnel_settings(grace=CLIENT_GRACE),
        )
        await forward(tunnels, ports)

    return run_until_stopped(run())


def _explain(arguments: argparse.Namespace) -> int:
    from relay_core.auth import Search, explain_access
    from relay_core.net.tls import client_tls

    search = Search(access_settings(arguments), side="client", tls=client_tls(arguments.ca_file))
    lines, error = asyncio.run(explain_access(search))
    print(*lines, sep="\n")
    if error is None:
        return 0
    print_error(PROGRAM, error)
    return ConfigurationError.exit_code
