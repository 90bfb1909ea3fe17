"""`relay-agent node-agent`: the agent process of a node, which `relay_agent.node.connect` starts from a job."""

from __future__ import annotations

import argparse
from pathlib import Path

from relay_agent.cli.common import Commands

__all__ = ["COMMAND", "add_parser"]

COMMAND = "node-agent"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command; without a help text it is not listed in `relay-agent --help`."""
    parser = commands.add_parser(
        COMMAND,
        aliases=["attend"],  # its older name: a job that is running may start the agent of a newer installation
        description="Used by relay_agent inside a job, which passes two descriptors on.",
    )
    parser.add_argument("root", type=Path, help="directory of the node")
    parser.add_argument("name", help="name of this agent in the directory")
    parser.add_argument("listener", type=int, help="descriptor of the socket that the node's processes connect to")
    parser.add_argument("lock", type=int, help="descriptor that holds the agent's lock")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the node until its last process has left."""
    import asyncio

    from relay_agent.node.server import serve_node

    asyncio.run(serve_node(arguments.root, arguments.name, arguments.listener, arguments.lock))
    return 0
