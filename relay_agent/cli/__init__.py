"""The `relay-agent` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from relay_agent.cli.run import add_run_options
from relay_agent.cli.run import run as run_with_debugging
from relay_agent.ranks.identity import explain
from relay_agent.settings.model import DEFAULT_PORT
from relay_core.errors import UsageError
from relay_core.program.console import configure_logging, run_program
from relay_core.program.options import access_settings, add_access_options

__all__ = ["main", "run"]

PROGRAM = "relay-agent"


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
        epilog="The connection string comes from --connection-string-file, RELAY_CONNECTION_STRING, "
        "RELAY_CONNECTION_STRING_FILE or a Key Vault secret, and needs the Listen right; with --namespace the identity "
        "needs the role Azure Relay Listener.",
    )
    serve.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT[:LOCAL]",
        help="port to offer; clients ask for PORT, the program listens on 127.0.0.1:LOCAL (default: PORT); repeatable",
    )
    serve.add_argument(
        "--dap", action="store_true", help="the ports are debugpy's: connect debuggers only, and never probe them"
    )
    add_access_options(serve)
    serve.set_defaults(command=_serve)

    run_command = commands.add_parser(
        "run",
        help="run a command whose Python processes can be debugged, without a change of their code",
        usage="%(prog)s [options] -- COMMAND ...",
        description="Becomes the command; every Python program that it starts, such as the ranks of torchrun, "
        "registers with this node's agent and can be debugged on demand. Exit status, signals and output are those of "
        "the command.",
    )
    add_run_options(run_command)
    run_command.set_defaults(command=_run)

    env = commands.add_parser(
        "env",
        help="print which rank this environment stands for, and why",
        description="Prints which launcher's variables decide about the rank of a process started here.",
    )
    env.add_argument("--port", type=int, default=DEFAULT_PORT, help="port of rank 0 (default %(default)s)")
    env.set_defaults(command=_env)

    attend = commands.add_parser(
        "attend", description="Used by relay_agent inside a job, which hands it two descriptors."
    )
    attend.add_argument("root", type=Path, help="the node's directory")
    attend.add_argument("name", help="of this agent in it")
    attend.add_argument("listener", type=int, help="descriptor of the socket to meet the node's processes on")
    attend.add_argument("lock", type=int, help="descriptor that holds the agent's lock")
    attend.set_defaults(command=_attend)
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    from relay_agent.agent.agent import Agent
    from relay_agent.agent.port_targets import parse_targets
    from relay_core.auth import find_access
    from relay_core.net.tls import client_tls
    from relay_core.program.run import run_until_stopped

    if arguments.explain_auth:
        return _explain(arguments)
    if not arguments.port:
        raise UsageError("no port is named", hint="add --port 5678, or see relay-agent serve --help")
    targets = parse_targets(arguments.port, dap_only=arguments.dap)
    settings, tls = access_settings(arguments), client_tls(arguments.ca_file)

    async def run() -> None:
        access = await find_access(settings, side="agent", tls=tls)
        agent = Agent(access.endpoint, access.credential, targets, tunnel_key=access.tunnel_key, tls=tls)
        await agent.run()

    return run_until_stopped(run())


def _run(arguments: argparse.Namespace) -> int:
    return _explain(arguments) if arguments.explain_auth else run_with_debugging(arguments)


def _env(arguments: argparse.Namespace) -> int:
    print(*explain(os.environ, arguments.port), sep="\n")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from relay_core.net.tls import client_tls
    from relay_core.program.explain import explain_auth

    return explain_auth(PROGRAM, arguments, side="agent", tls=client_tls(arguments.ca_file))


def _attend(arguments: argparse.Namespace) -> int:
    from relay_agent.node.server import serve_node

    asyncio.run(serve_node(arguments.root, arguments.name, arguments.listener, arguments.lock))
    return 0
