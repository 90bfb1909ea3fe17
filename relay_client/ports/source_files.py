"""Source files on this machine: the directory with a job's code, and files that differ from the job's files.

Breakpoints that are set in a different version of a file stop the job at the wrong lines.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.requests import Digest, FileDigest, stream_name
from relay_core.errors import RelayDebugError
from relay_core.records import parse
from relay_core.tunnel.limits import MAX_TARGET_NAME

__all__ = ["find_local_root", "is_different"]

MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file that is compared."""
TIMEOUT = 10.0
"""Seconds to wait for the agent's response; nothing is delayed in the meantime."""

logger = logging.getLogger(__name__)


def find_local_root(folder: str, script: str) -> str:
    """Return the editor's folder or the current directory, whichever contains the job's script; "" if neither does.

    Args:
        folder: The folder that the editor has opened, or "".
        script: A file name, or the name of a module.
    """
    if not script:
        return ""
    relative = Path(script) if script.endswith(".py") else Path(*script.split("."))
    for root in ([Path(folder)] if folder else []) + [Path.cwd()]:
        if any((root / each).exists() for each in (relative, relative.with_suffix(".py"))):
            return str(root)
    return ""


async def is_different(tunnels: Tunnels, agent_id: AgentId, port: int, local: str, remote: str) -> bool | None:
    """Return whether two files differ in more than their line endings; None if they cannot be compared.

    Args:
        tunnels: The client's tunnels.
        agent_id: The agent of the job.
        port: The logical port of the job.
        local: The file on this machine.
        remote: The file on the node, relative to the job's start directory if it is inside that directory.
    """
    request = Digest(port, remote)
    if len(stream_name(request).encode()) > MAX_TARGET_NAME:
        return None
    own = await asyncio.to_thread(_digest, Path(local))
    if not own:
        return None
    try:
        found = parse(FileDigest, await send_request(tunnels, agent_id, request, within=TIMEOUT)).sha256
    except RelayDebugError as error:  # the agent is of an earlier version, or serves only ports
        logger.debug("cannot compare %s with the job's file: %s", local, error)
        return None
    return found != own if found else None


def _digest(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return ""
        return FileDigest.of(path.read_bytes()).sha256
    except (OSError, ValueError):  # the file is not readable, or the path is invalid
        return ""
