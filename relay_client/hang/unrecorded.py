"""Finds ranks that wait in a call of torch which its recorders do not show, by their stacks; sans-IO.

torch records a collective operation after its communicator exists, so ranks that wait in their first operation have no
record of it. Operations in a CUDA graph are never recorded; their ranks wait for the device. Point-to-point operations
have no place in the order of a group's operations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from relay_client.hang.reports import RankReport
from relay_client.stacks.groups import is_library
from relay_core.agent_api.collectives import is_collective
from relay_core.agent_api.stacks import Frame, ThreadStack

__all__ = ["IN_A_CALL", "POINT_TO_POINT", "UnrecordedWait", "may_hang", "unrecorded_waits"]

DEVICE = ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/accelerator/__init__.py")
"""Files of torch whose functions named `synchronize` wait for the device."""
POINT_TO_POINT = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
"""Functions of `torch.distributed` that wait for one other rank."""
IN_A_CALL = frozenset({"blocked", "running"})
"""Words of `ProcessCollectives.activity` for a main thread that stays in one call."""


@dataclass(frozen=True)
class UnrecordedWait:
    """Ranks whose main thread is in the same call, at the same place."""

    call: str
    """The function of torch that the user's code has called."""
    place: str
    """Where it has: `train.py:88 in step`."""
    is_for_device: bool
    """Whether they wait for their device; otherwise, for other ranks."""
    ranks: tuple[int, ...]

    def only(self, ranks: Collection[int]) -> UnrecordedWait | None:
        """Return the wait of these of its ranks; None without any."""
        kept = tuple(rank for rank in self.ranks if rank in ranks)
        return UnrecordedWait(self.call, self.place, self.is_for_device, kept) if kept else None


def unrecorded_waits(ranks: Mapping[int, RankReport], recorded: Collection[int]) -> tuple[UnrecordedWait, ...]:
    """Return the waits of a job that are not recorded, in the order of their first ranks.

    Args:
        ranks: Everything that is known about the job, by global rank.
        recorded: The ranks of which the recorders show what they wait for, or where they are missing.
    """
    found: dict[tuple[str, str, bool], list[int]] = {}
    for rank, report in ranks.items():
        if rank in recorded or report.main is None or report.is_stopped:
            continue
        if report.activity in IN_A_CALL and (wait := _wait(report.main)) is not None:
            call, is_for_device = wait
            found.setdefault((call, report.place, is_for_device), []).append(rank)
    return tuple(UnrecordedWait(*key, tuple(waiting)) for key, waiting in found.items())


def may_hang(wait: UnrecordedWait, ranks: Mapping[int, RankReport]) -> bool:
    """Return whether a wait that lasts is a hang, because progress in between would show in the recorders."""
    if wait.is_for_device or wait.call in POINT_TO_POINT:
        return False
    return any(_shows_progress(ranks[rank]) for rank in wait.ranks)


def _shows_progress(report: RankReport) -> bool:
    found = report.collectives
    return found is not None and (found.rank is None or not found.problem)  # without a process group, nothing can pass


def _wait(main: ThreadStack) -> tuple[str, bool] | None:
    """Return the function of torch in which a thread waits, and whether it waits for the device."""
    for frame in _called_by_own_code(main.frames):
        if is_collective(frame):
            return frame.function, False
        if frame.function == "synchronize" and frame.file.replace("\\", "/").endswith(DEVICE):
            return frame.function, True
    return None


def _called_by_own_code(frames: Iterable[Frame]) -> list[Frame]:
    """Return the innermost frames that are in libraries, the outermost of them first."""
    called: list[Frame] = []
    for frame in frames:
        called = [*called, frame] if is_library(frame) else []
    return called
