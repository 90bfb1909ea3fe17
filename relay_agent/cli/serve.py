"""`relay-agent serve`: makes ports of this machine available to clients."""

from __future__ import annotations

import argparse

from relay_agent.cli.common import Commands, explain
from relay_core.errors import UsageError
from relay_core.program.options import access_settings, add_access_options

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "serve",
        help="make local ports available to clients until stopped",
        description="Makes the given ports on this machine, and no others, available to the clients of a hybrid "
        "connection.",
        epilog="The connection string comes from --connection-string-file, RELAY_CONNECTION_STRING, "
        "RELAY_CONNECTION_STRING_FILE or a Key Vault secret, and needs the Listen right; with --namespace, the "
        "identity needs the Azure Relay Listener role.",
    )
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT[:[ADDRESS:]LOCAL]",
        help="port to serve: clients connect to PORT, and the program listens on port LOCAL (default: PORT) at the "
        "loopback address ADDRESS (default: 127.0.0.1), as in 5678:[::1]:40123; repeatable",
    )
    parser.add_argument(
        "--dap",
        action="store_true",
        help="treat the ports as debugpy ports: accept only programs that use the Debug Adapter Protocol, and never "
        "probe the ports",
    )
    add_access_options(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    from relay_agent.agent.agent import Agent
    from relay_agent.agent.port_targets import parse_targets
    from relay_core.auth import find_access
    from relay_core.net.relay_tls import client_tls
    from relay_core.program.run import run_until_stopped
    from relay_core.value_parsers import named

    if arguments.explain_auth:
        return explain(arguments)
    if not arguments.port:
        raise UsageError("no ports given", hint="add --port 5678, or run: relay-agent serve --help")
    with named("--port"):
        targets = parse_targets(arguments.port, dap_only=arguments.dap)
    settings, tls = access_settings(arguments), client_tls(arguments.ca_file)

    async def serve() -> None:
        access = await find_access(settings, side="agent", tls=tls)
        agent = Agent(access.endpoint, access.credential, targets, tunnel_key=access.tunnel_key, tls=tls)
        await agent.run()

    return run_until_stopped(serve(), closing="closing the client connections")
