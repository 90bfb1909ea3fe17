"""Identity of an agent, and the agents that it replaces because they were killed.

Clients cannot see that an agent was killed: it looks like one that has lost its network and may return. The next agent
knows it. A node has one agent at a time, which holds a lock until it exits (`relay_agent.node.directory`), and an agent
that exits in order removes the lock file. So an id that is found in the lock file is that of an agent that was killed.
It becomes part of the announcement, and clients end their sessions with that agent at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid

from relay_core.agent_api.announcement import AgentId

__all__ = ["Succession"]

MAX_PREDECESSORS = 8
"""Predecessors that are kept; these have announced the earlier ones."""
MAX_RECORD = 4096
"""Bytes of the lock file."""


class Succession:
    """The new id of this agent, and the record of its predecessors in the lock file, to which the id is added.

    Args:
        lock: Descriptor of the locked file; None for an agent that replaces no other one.
    """

    def __init__(self, lock: int | None = None) -> None:
        self.agent_id = AgentId(str(uuid.uuid4()))
        self._lock = lock
        found = _read(lock) if lock is not None else {}
        agents = found.get("agents")
        ids = [AgentId(agent) for agent in agents if isinstance(agent, str)] if isinstance(agents, list) else []
        self.predecessors = tuple(ids[-MAX_PREDECESSORS:])
        """Ids of the agents that were killed."""
        self.has_listened = found.get("has_listened") is True
        """True if this agent or a predecessor has listened, so that the settings are known to be right."""
        self._write()

    def __repr__(self) -> str:
        return f"<Succession {self.agent_id[:8]} replaces {len(self.predecessors)}>"

    def listening(self) -> None:
        """Record that this agent listens."""
        if not self.has_listened:
            self.has_listened = True
            self._write()

    def _write(self) -> None:
        if self._lock is None:
            return
        record = {"agents": [*self.predecessors, self.agent_id], "has_listened": self.has_listened}
        data = json.dumps(record).encode()
        with contextlib.suppress(OSError):  # the disk is full: clients then notice the death of this agent later
            os.pwrite(self._lock, data, 0)
            os.ftruncate(self._lock, len(data))


def _read(lock: int) -> dict[str, object]:
    """Return the record; an empty one for a new file, and if its writer was killed while writing."""
    try:
        record = json.loads(os.pread(lock, MAX_RECORD, 0) or b"{}")
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
