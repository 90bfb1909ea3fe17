"""`relay-client mcp`: an MCP server on stdin and stdout for coding agents."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from relay_client.cli.common import Commands, add_command, add_flag, run_quietly
from relay_core.errors import ConfigurationError


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "mcp",
        run,
        summary="let a coding agent examine the job (MCP server)",
        description="Runs an MCP server on stdin and stdout, to be started by an editor or another MCP host. Its tools "
        "read ranks, stacks, variables and values without stopping a process. Every call is recorded. Requires the "
        "'mcp' extra.",
    )
    text = (
        "also let the agent set breakpoints, continue and step, and evaluate expressions that execute code in the job"
    )
    add_flag(parser, "--allow-control", text)
    text = "append a record of each call to this file (default: mcp-audit.jsonl in ~/.local/state/relay-debug)"
    parser.add_argument("--audit-file", type=Path, default=None, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stdin is closed."""
    try:
        from relay_client.mcp.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"mcp", "pydantic"}:
            raise
        raise ConfigurationError(
            "the mcp package is not installed", hint="run pip install 'mcp>=2.3' in relay-client's environment"
        ) from error
    import asyncio

    from relay_client.cli.common import make_tunnels
    from relay_client.mcp.audit import AuditLog

    audit = AuditLog(arguments.audit_file)

    async def body() -> None:
        try:
            await serve(await make_tunnels(arguments), audit, allow_control=arguments.allow_control)
        except asyncio.CancelledError:
            os._exit(0)  # stopped by a signal; a thread that waits for stdin would keep the process alive

    return run_quietly(arguments, body())
