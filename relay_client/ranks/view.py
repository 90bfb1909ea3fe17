"""What a target is doing, as a kind and as text, and how it has ended.

This is the only description of both: tables, log lines, events, the page, the extension and the MCP server show it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from relay_core.agent_api.announcement import Ending, State, TargetInfo


class Kind(enum.Enum):
    """What a target is doing, for an icon, a color or an order."""

    CRASHED = "crashed"
    """Held at an uncaught exception, by its agent or by a debugger."""
    STOPPED = "stopped"
    """Stopped by a debugger."""
    WAITING = "waiting"
    """Waiting for a debugger."""
    RUNNING = "running"
    UNREACHABLE = "unreachable"
    """Its port leads to another target, because two jobs use the same port."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """Its agent does not announce it, as for a port of `relay-agent serve`."""


@dataclass(frozen=True)
class StopReport:
    """Where a process is stopped, as reported by its debugger to the editor."""

    reason: str
    """The reason as the debugger reports it: `breakpoint`, `step`, `exception`, `pause`, ..."""
    since: float
    file: str | None = None
    """None until the editor has requested the stack; a path on this machine if `pathMappings` map it to one."""
    line: int | None = None
    function: str | None = None
    uncaught: str | None = None
    """The exception at which the process is stopped, if no code catches it, as in `ValueError: no`."""

    @property
    def place(self) -> str:
        """File name and line, as in `train.py:41`; "" if unknown."""
        if self.file is None:
            return ""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return name if self.line is None else f"{name}:{self.line}"


@dataclass(frozen=True)
class RankView:
    """What a target is doing."""

    kind: Kind
    text: str = ""
    """`crashed: ValueError: no`, `stopped at train.py:41`, `waiting for a debugger`, `running`, `in all_reduce, waiting
    for rank 2`, `unreachable: port 5678 leads to node-0 pid 12`, or "" if unknown."""
    place: str = ""
    """File name and line of a stop or crash, as in `train.py:41`; "" if the target is running or it is unknown."""
    since: float | None = None
    """Unix time, by the node's clock, when this began."""

    @property
    def clause(self) -> str:
        """The end of a sentence about the target: `is running`, `crashed: ValueError: no`."""
        return self.text if self.kind is Kind.CRASHED else f"is {self.text or 'registered'}"


def rank_view(target: TargetInfo, stop: StopReport | None = None, *, waits: str = "", port_owner: str = "") -> RankView:
    """Return what a target is doing.

    Args:
        target: Its announcement.
        stop: Where an editor of this user has stopped it, which may be newer than the announcement.
        waits: The collective operation in which it waits, and for whom; "" if it does not wait.
        port_owner: Display name of the process to which the target's port leads instead; "" if it leads to the target.
    """
    if port_owner:
        return RankView(Kind.UNREACHABLE, f"unreachable: port {target.port} leads to {port_owner}")
    attached, is_held = target.attachment, target.state is State.CRASHED
    is_stopped = stop is not None or (attached is not None and attached.is_stopped)
    announced = (attached.stopped_at if attached is not None else "") or target.place
    place = (stop.place if stop is not None else "") or announced
    reported = attached if stop is None else stop
    uncaught = reported.uncaught if reported is not None else None
    since = stop.since if stop is not None and not is_held else target.activity_since
    if is_held or uncaught:
        why = target.detail if is_held else uncaught
        return RankView(Kind.CRASHED, f"crashed{f': {why}' if why else ''}", place, since)
    if is_stopped:
        return RankView(Kind.STOPPED, f"stopped{f' at {place}' if place else ''}", place, since)
    if attached is None and target.state is State.WAITING:
        detail = f" ({target.detail})" if target.detail else ""
        return RankView(Kind.WAITING, f"waiting for a debugger{detail}", "", since)
    if attached is not None or target.state is State.RUNNING:
        return RankView(Kind.RUNNING, waits or "running", "", None if waits else since)
    return RankView(Kind.UNKNOWN, "", "", since)


def replaced_text(target: TargetInfo) -> str:
    """Return what a debugger that was replaced because its connection was lost had done; "" if it had no stop."""
    held = target.attachment
    if held is None or not held.is_stopped:
        return ""
    at = f" at {held.stopped_at}" if held.stopped_at else ""
    text = f"{target.label} was stopped{at} by {held.user}, whose connection was lost"
    return f"{text}; that debugger was replaced, and the job continued"


# How a target has ended, as the end of a sentence and as an exit code, and how long to wait for its announcement.

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
