"""What a process may request of the node's monitor."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from relay_agent.node.protocol import Registration

__all__ = ["MonitorSettings"]


class MonitorSettings(NamedTuple):
    """The settings of the monitor, as in the registration of the process that requests it."""

    interval: float
    """Seconds between two samples."""
    outputs: Path
    """Directory for the files of the monitor."""
    metrics: tuple[str, int] | None
    """Host and port at which it serves its samples to Prometheus; None for no server."""

    @classmethod
    def of(cls, registration: Registration) -> MonitorSettings | None:
        """Return the settings in a registration; None if the process does not request the monitor."""
        interval, address = registration.get("monitor"), registration.get("metrics")
        if not interval:
            return None
        outputs = Path(registration.get("outputs") or "outputs")
        return cls(interval, outputs, (str(address[0]), int(address[1])) if address else None)
