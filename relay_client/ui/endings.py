"""How a target has ended, as the end of a sentence and as an exit code."""

from __future__ import annotations

from relay_core.agent_api.ending import Ending

__all__ = ["exit_code", "how_ended"]

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
        return f"was killed by {_signal(ending.signal)}{f' ({why})' if why else ''}"
    if ending.replaced_by:
        return f"has replaced itself with {ending.replaced_by} (exec); attach again to debug that program"
    error = f": {ending.error}" if ending.error else ""
    return f"has ended{error}" if ending.status is None else f"ended with status {ending.status}{error}"


def exit_code(ending: Ending) -> int | None:
    """Return the exit code as a shell shows it, or None if it is unknown."""
    return 128 + ending.signal if ending.signal is not None else ending.status


def _signal(number: int) -> str:
    return f"SIG{_SIGNALS[number]}" if number in _SIGNALS else f"signal {number}"
