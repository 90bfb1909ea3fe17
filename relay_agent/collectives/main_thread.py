"""What the main thread of this process is doing: running, waiting in a call, or stopped by a debugger."""

from __future__ import annotations

import opcode
import sys
from types import FrameType

from relay_agent.gevent_originals import threading, time
from relay_agent.stacks.stopped import stopped_threads

__all__ = ["activity"]

SAMPLES = 10
INTERVAL = 0.005
"""Seconds between samples. A waiting thread is at the same instruction in all of them, and uses no processor time."""
MIN_SHARE = 0.05
"""Share of the time that a thread must spend on a processor to count as running; low, because other threads may use the
same processor."""


def activity() -> str:
    """Return "stopped", "running Python", "running" (in a call) or "blocked" (in a call).

    The call takes up to `SAMPLES` times `INTERVAL`.
    """
    ident = threading.main_thread().ident
    if ident in stopped_threads():
        return "stopped"
    places, started, used = set(), time.monotonic(), _processor_time(ident)
    for _ in range(SAMPLES):
        frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - its documented name
        places.add(None if frame is None else (id(frame), frame.f_lasti))
        if len(places) > 1 or (frame is not None and _is_between_calls(frame)):
            return "running Python"
        del frame  # a reference would keep the job's objects alive
        time.sleep(INTERVAL)
    share = (_processor_time(ident) - used) / (time.monotonic() - started)
    return "running" if share > MIN_SHARE else "blocked"


def _is_between_calls(frame: FrameType) -> bool:
    """Return whether a frame is at a jump or at its start: only there does a loop without calls release the GIL."""
    name = opcode.opname[frame.f_code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
    return "JUMP" in name or name == "RESUME"


def _processor_time(ident: int | None) -> float:
    """Return the processor time of a thread in seconds; 0 where the system does not report it."""
    if ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
