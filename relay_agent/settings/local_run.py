"""A local run is only monitored: `--debug-monitor` is on, and nothing selects a relay, so no debugger can attach.

A partly configured relay, such as a namespace without `--hc`, is still an error. So is a missing relay if the job must
not run without a debugger (`--debug-on-timeout abort`).
"""

from __future__ import annotations

from collections.abc import Mapping

from relay_agent.ranks.identity import SINGLE, ProcessIdentity
from relay_agent.settings.model import DebugSettings

__all__ = ["LOCAL_RUN", "NO_RELAY", "is_local", "run_name"]

LOCAL_RUN = "local_run"
"""The only field of a registration's `access` in a local run; its value is the name of the run."""
NO_RELAY = "no hybrid connection is set"
"""Why no debugger can attach."""
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
"""Variables that differ between any two torchrun jobs that are running on the same machine."""


def is_local(settings: DebugSettings, environ: Mapping[str, str]) -> bool:
    """Return whether a run has a monitor and no relay."""
    return bool(settings.monitor) and not settings.abort_on_timeout and not settings.access.selects_relay(environ)


def run_name(identity: ProcessIdentity, environ: Mapping[str, str], *, pid: int, directory: str) -> str:
    """Return a text that is the same for all ranks of a run on this node, whose processes share an agent.

    Two runs on one machine must not share an agent: each has its own outputs, and both may use the same logical ports.
    A process that no launcher has started is a run of its own.

    Args:
        identity: Identity of the process.
        environ: Its environment.
        pid: Its process id.
        directory: The directory in which it was started.
    """
    if identity.launcher == SINGLE:
        return str(pid)
    parts = (identity.launcher, identity.run_id, *(environ.get(name) for name in _RENDEZVOUS), directory)
    return " ".join(str(part) for part in parts)
