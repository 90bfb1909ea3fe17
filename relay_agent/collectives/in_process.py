"""This process's answer to the question `collectives`, given by its helper thread."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from relay_agent.collectives.flight_recorder import find_reader, group_name, read_recorders
from relay_agent.job.gevent_originals import threading, time
from relay_agent.stacks.in_process import collect as collect_stacks
from relay_agent.stacks.stopped import stopped_threads
from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives, is_collective
from relay_core.agent_api.stacks import HELPER_THREAD, Frame, ProcessStacks, is_library
from relay_core.json_values import count, items, mapping, text

# What the main thread of this process is doing: running, waiting in a call, or stopped by a debugger.

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


# Where the job has called the operations in which it waits, from the stacks in torch's flight recorder.
#
# With NCCL and with `async_op=True`, a rank returns from an operation that is not complete and waits somewhere else.
# The recorder has the stack of each call, which only the pickled dump contains: reading it takes as long as reading all
# operations. torch imports its compiler for this, which takes a second; so nothing is read unless the job has imported
# it already. It has once it has created an optimizer.

COMPILER = "torch._inductor"
"""What torch imports to describe stacks."""
MIN_AGE = 1.0
"""Age in seconds from which an operation is of interest; in a healthy job, most operations take less time."""
MAX_PLACE = 200


def with_call_places(groups: tuple[GroupRecord, ...], main: Sequence[Frame]) -> tuple[GroupRecord, ...]:
    """Return the groups with the places at which their first incomplete operations were called, as far as known.

    Args:
        groups: The groups of this process.
        main: The stack of its main thread; in an operation that it has not left, this thread shows the place.
    """
    awaited = {(one.recorder, one.name, one.completed + 1) for one in groups if _is_awaited(one)}
    if not awaited or any(map(is_collective, main)):
        return groups
    found: dict[tuple[str, str, int], str] = {}
    for recorder in {key[0] for key in awaited}:
        found.update(_places(recorder, awaited))
    return tuple(
        group._replace(operations=tuple(_with_place(one, group, found) for one in group.operations)) for group in groups
    )


def _is_awaited(group: GroupRecord) -> bool:
    first = group.completed + 1
    return any(one.number == first and (one.age or 0.0) >= MIN_AGE for one in group.operations)


def _with_place(one: Operation, group: GroupRecord, found: Mapping[tuple[str, str, int], str]) -> Operation:
    return one._replace(called=found.get((group.recorder, group.name, one.number), ""))


def _places(recorder: str, awaited: set[tuple[str, str, int]]) -> dict[tuple[str, str, int], str]:
    """Return the places of operations in one recorder, by recorder, group and number."""
    reader = find_reader(recorder)
    pickle = sys.modules.get("pickle")
    if reader is None or pickle is None or COMPILER not in sys.modules:
        return {}
    try:
        dump = mapping(pickle.loads(reader(True, True, True)))  # only operations that are not complete
    except Exception:  # noqa: BLE001 - whatever a version of torch raises, the place is not known
        return {}
    found: dict[tuple[str, str, int], str] = {}
    for entry in map(mapping, items(dump.get("entries"))):
        key = recorder, group_name(entry, 0), count(entry.get("collective_seq_id")) or 0
        if key in awaited and entry.get("is_p2p") is not True:
            found.setdefault(key, _place(items(entry.get("frames"))))
    return found


def _place(frames: Sequence[object]) -> str:
    """Return the innermost frame of the user's own code; the frames are innermost first."""
    for frame in map(mapping, frames):
        file = text(frame.get("filename"))
        if file and not is_library(file):
            name = file.replace("\\", "/").rpartition("/")[2]
            return f"{name}:{count(frame.get('line')) or 0} in {text(frame.get('name'))}"[:MAX_PLACE]
    return ""


def collect(_question: object = None) -> ProcessCollectives:
    """Return the process groups of this process, and the stack and activity of its main thread; takes up to 60 ms."""
    recorded = read_recorders()
    main = tuple(thread for thread in collect_stacks() if thread.main)
    return recorded._replace(
        groups=with_call_places(recorded.groups, main[0].frames if main else ()),
        activity=activity(),
        stacks=ProcessStacks(HELPER_THREAD, main),
    )
