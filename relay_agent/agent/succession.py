"""Identity of an agent and of the killed agents that it replaces.

To clients, an agent that was killed looks like one that has lost its network and may return. The next agent can
distinguish the two. A node has one agent at a time, which holds a lock until it exits (`relay_agent.node.directory`),
and an agent that exits normally removes the lock file. An id in the lock file therefore belongs to a killed agent. It
becomes part of the announcement, and clients immediately end their sessions with that agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping

from relay_core.agent_api.announcement import AgentId
from relay_core.json_values import items, mapping

MAX_PREDECESSORS = 8
"""Maximum number of predecessors in the record. Earlier agents were announced by these predecessors."""
MAX_RECORD = 4096
"""Maximum number of bytes that are read from the lock file."""


class Succession:
    """The new id of this agent and the record of its predecessors in the lock file, to which the new id is added.

    Args:
        lock: Descriptor of the locked file; None for an agent that replaces no other agent.
    """

    def __init__(self, lock: int | None = None) -> None:
        self.agent_id = AgentId(str(uuid.uuid4()))
        self._lock = lock
        found = _read(lock) if lock is not None else {}
        ids = [AgentId(agent) for agent in items(found.get("agents")) if isinstance(agent, str)]
        self.predecessors = tuple(ids[-MAX_PREDECESSORS:])
        """Ids of the agents that were killed."""
        self.has_listened = found.get("has_listened") is True
        """True if this agent or a predecessor has listened; the settings are then known to be correct."""
        self._write()

    def listening(self) -> None:
        """Record that this agent is listening."""
        if not self.has_listened:
            self.has_listened = True
            self._write()

    def _write(self) -> None:
        if self._lock is None:
            return
        record = {"agents": [*self.predecessors, self.agent_id], "has_listened": self.has_listened}
        data = json.dumps(record).encode()
        with contextlib.suppress(OSError):  # the disk is full: if this agent is killed, clients will notice it later
            os.pwrite(self._lock, data, 0)
            os.ftruncate(self._lock, len(data))


def _read(lock: int) -> Mapping[str, object]:
    """Return the record; an empty one if the file is new or its writer was killed while writing."""
    try:
        return mapping(json.loads(os.pread(lock, MAX_RECORD, 0) or b"{}"))
    except (OSError, ValueError):
        return {}
