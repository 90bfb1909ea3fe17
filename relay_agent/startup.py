"""What a process of a `relay-agent run` job does before its program begins."""

from __future__ import annotations

from relay_agent.job import start_debugging
from relay_agent.settings import DebugSettings

__all__ = ["start"]


def start(settings: DebugSettings) -> None:
    """Register this process with its node's agent; wait for a debugger if it is one of the ranks that do.

    Raises:
        SystemExit: nobody came in time, and the settings say that the process ends then.
    """
    start_debugging(settings)
