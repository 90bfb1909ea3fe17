"""The sentences that an editor shows; `messages` puts the program's name in front of them."""

from __future__ import annotations

import ntpath

from relay_client.editor.job_view import JobView
from relay_client.ui.text import duration
from relay_core.agent_api.ending import Ending

__all__ = [
    "CANNOT_FOLLOW",
    "GUARDED",
    "NO_CHILDREN",
    "back_text",
    "debugger_ended_text",
    "different_text",
    "ended_text",
    "equal_text",
    "exit_code",
    "how_ended",
    "interrupted_text",
    "waiting_text",
]

CANNOT_FOLLOW = (
    '"subProcess": true offers child processes to this editor, but the editor does not announce that it can debug '
    'them, so each child process would wait. hint: remove "subProcess" from the attach configuration'
)
NO_CHILDREN = (
    '"subProcess": true has no effect: the session of all ranks does not follow child processes. hint: attach to the '
    "port of the rank whose child processes you want to debug"
)
SIGKILL = 9
_SIGNALS = {
    **dict(enumerate(("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL"), start=1)),
    **dict(enumerate(("USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM"), start=10)),
    24: "XCPU",
    25: "XFSZ",
    31: "SYS",
}
"""Signals that end a process on Linux (signal(7)). The job runs there; this machine may number them differently."""
GUARDED = "detached; the job continues (relay-client --allow-terminate lets an editor end it)"


def waiting_text(view: JobView, reason: str, seconds: float) -> str:
    """Return what a connection waits for, why, and for how long: `waiting for rank 0 on 'myhc': ..., 35 s`."""
    where = f" on '{view.hybrid_connection}'" if view.hybrid_connection and " on " not in view.name else ""
    return f"waiting for {view.name}{where}: {reason or 'looking for its agent'}, {duration(seconds)}"


def interrupted_text(view: JobView) -> str:
    """Return the sentence for a tunnel that has lost its connection."""
    return (
        f"the connection to {view.name} is interrupted: {view.away_reason}; it is restored automatically, and steps "
        "that you request meanwhile run after that"
    )


def back_text(view: JobView, seconds: float) -> str:
    """Return the sentence for a tunnel that is connected again."""
    return f"the connection to {view.name} was restored after {duration(seconds)}"


def different_text(view: JobView, path: str) -> str:
    """Return the sentence for a source file that differs from the one on the node."""
    node = f" on {view.host}" if view.host else ""
    return (
        f"{ntpath.basename(path)} differs from the job's file{node}: breakpoints and steps may be shown at the wrong "
        f"lines ({path})"
    )


def equal_text(view: JobView, path: str) -> str:
    """Return the sentence for a source file that differed from the job's until the job's code was replaced."""
    node = f" on {view.host}" if view.host else ""
    return f"{ntpath.basename(path)} is what the job{node} executes now, after a push ({path})"


def ended_text(view: JobView, ending: Ending) -> str:
    """Return how a target has ended."""
    return f"{view.subject} {how_ended(ending)}"


def how_ended(ending: Ending) -> str:
    """Return how a target has ended, without the subject of the sentence."""
    if ending.signal is not None:
        memory = "; the usual cause is lack of memory" if ending.signal == SIGKILL else ""
        name = f"SIG{_SIGNALS[ending.signal]}" if ending.signal in _SIGNALS else "unknown"
        return f"was killed (signal {ending.signal}, {name}{memory})"
    error = f": {ending.error}" if ending.error else ""
    return f"has ended{error}" if ending.status is None else f"ended with status {ending.status}{error}"


def debugger_ended_text(view: JobView, *, goes_on: bool) -> str:
    """Return the sentence for a debugger that has exited, with what is known about its target."""
    if goes_on:
        return f"the debugger exited unexpectedly; {view.subject} continues without a debugger"
    return "the debug session has ended; the job's exit status is unknown"


def exit_code(ending: Ending) -> int | None:
    """Return the exit code as a shell shows it, or None if it is unknown."""
    return 128 + ending.signal if ending.signal is not None else ending.status
