"""Copies the event files of running jobs as they grow: only the bytes that a copy does not have yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.tensorboard.selection import folder_name
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.files.event_files import EventData, EventDataRequest, EventFile, EventFiles, EventFilesRequest
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.records import parse

__all__ = ["LiveFiles"]

INTERVAL = 2.0
"""Seconds between two checks of a node's files; TensorBoard reloads the copies every three seconds."""
WITHIN = 60.0
"""Seconds to wait for one response; a tunnel that was cut is resumed within this time."""
MAX_BYTES = 2 * 1024**3
"""Maximum number of bytes in one copy, so that a node cannot fill this machine's disk with one file."""

logger = logging.getLogger(__name__)


class LiveFiles:
    """The copies of the event files of running jobs.

    Args:
        tunnels: The client's tunnels.
        directory: The directory for the copies, with a folder for each run and node.
        includes: Returns whether the job with a given run id is chosen.
    """

    def __init__(self, tunnels: Tunnels, directory: Path, includes: Callable[[str], bool]) -> None:
        self._tunnels = tunnels
        self._directory = directory
        self._includes = includes
        self._reported: set[str] = set()

    def __repr__(self) -> str:
        return f"<LiveFiles {self._directory}>"

    async def copy_always(self) -> NoReturn:
        """Copy new data until cancelled."""
        while True:
            await self.copy_once()
            await asyncio.sleep(INTERVAL)

    async def copy_once(self) -> None:
        """Copy new data from all nodes; a node that cannot answer does not delay other nodes."""
        chosen = [agent for agent in self._tunnels.roster if self._includes(agent.run)]
        await asyncio.gather(*map(self._copy_node, chosen))

    async def _copy_node(self, agent: AgentInfo) -> None:
        folder = self._directory / folder_name(agent.run or agent.host) / folder_name(agent.host)
        try:
            response = await send_request(self._tunnels, agent.id, EventFilesRequest(), within=WITHIN)
            for file in parse(EventFiles, response).files:
                await self._copy_file(agent, file, folder / file.path)
        except ConnectionLost as lost:
            logger.debug("cannot fetch event files from %s: %s", agent.name, lost)
        except (RelayDebugError, OSError) as error:
            if agent.id not in self._reported:
                self._reported.add(agent.id)
                logger.warning("cannot fetch event files from %s: %s", agent.name, error)

    async def _copy_file(self, agent: AgentInfo, file: EventFile, copy: Path) -> None:
        """Append the new bytes of a file to its copy; a file that has become shorter is copied again."""
        size = _size(copy)
        if file.size < size:
            size = 0
        while size < min(file.size, MAX_BYTES):
            request = EventDataRequest(file.path, size)
            data = parse(EventData, await send_request(self._tunnels, agent.id, request, within=WITHIN)).data
            if not data:
                return
            _write(copy, data, size)
            size += len(data)


def _size(copy: Path) -> int:
    try:
        return copy.stat().st_size
    except FileNotFoundError:
        return 0


def _write(copy: Path, data: bytes, offset: int) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("ab" if offset else "wb") as opened:
        opened.write(data)
