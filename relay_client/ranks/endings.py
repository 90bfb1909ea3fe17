"""How a target has ended, as the end of a sentence and as an exit code, and how long to wait for its announcement."""

from __future__ import annotations

import re

from relay_core.agent_api.announcement import Ending

END_PATIENCE = 1.0
"""Seconds to wait for the announcement of how a process has ended; the user waits in the meantime."""
EXIT_PATIENCE = 5.0
"""Seconds to wait for the exit status of a process that has been announced as exiting."""

SIGKILL = 9
_SIGNALS = {
    **dict(enumerate(("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL"), start=1)),
    **dict(enumerate(("USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM"), start=10)),
    24: "XCPU",
    25: "XFSZ",
    31: "SYS",
}
"""Signals that terminate a process on Linux (signal(7)), where jobs run; this machine may number them differently."""


def how_ended(ending: Ending) -> str:
    """Return how a target has ended, without the subject of the sentence."""
    if ending.signal is not None:
        why = ending.error or ("the usual cause is lack of memory" if ending.signal == SIGKILL else "")
        name = f"SIG{_SIGNALS[ending.signal]}" if ending.signal in _SIGNALS else f"signal {ending.signal}"
        return f"was killed by {name}{f' ({why})' if why else ''}"
    if ending.replaced_by:
        return f"has replaced itself with {ending.replaced_by} (exec); attach again to debug that program"
    error = f": {ending.error}" if ending.error else ""
    return f"has ended{error}" if ending.status is None else f"ended with status {ending.status}{error}"


def exit_code(ending: Ending) -> int | None:
    """Return the exit code as a shell shows it, or None if it is unknown."""
    return 128 + ending.signal if ending.signal is not None else ending.status


_LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|broken pipe|Dist(Backend|Network|Store)Error|ncclRemoteError"
    r"|caught collective operation timeout|communicator was aborted",
    re.IGNORECASE,
)


def is_consequence(error: str) -> bool:
    """Return whether an exception is usually raised because another rank has crashed or ended: a lost connection."""
    return _LOST_PEER.search(error) is not None
