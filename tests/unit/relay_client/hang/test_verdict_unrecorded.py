"""Facts about waits that only stacks show."""

from dataclasses import replace

import pytest

from relay_client.hang.output import describe_job
from relay_client.hang.reports import Job, RankReport
from relay_client.hang.verdict import MIN_AGE, JobVerdict, UnrecordedWait
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from tests.unit.relay_client.hang.test_verdict import group, ranks, report

LIBRARY = "/usr/lib/python3.12/site-packages/"
MAIN = Frame("/job/train.py", 90, "step")
IN_ALL_REDUCE = (
    MAIN,
    Frame(f"{LIBRARY}torch/distributed/c10d_logger.py", 81, "wrapper"),
    Frame(f"{LIBRARY}torch/distributed/distributed_c10d.py", 3068, "all_reduce"),
)
IN_SYNCHRONIZE = (MAIN, Frame(f"{LIBRARY}torch/cuda/__init__.py", 1100, "synchronize"))
WAIT = UnrecordedWait("all_reduce", "train.py:90 in step", is_for_device=False, ranks=(0, 1))


def at(rank: int, *frames: Frame, activity: str = "blocked", completed: int = 5) -> RankReport:
    """Return the report of a rank whose recorder shows only completed operations."""
    found = report(rank, group(completed, completed))
    assert found.collectives is not None
    stacks = ProcessStacks(how="helper thread", threads=(ThreadStack("MainThread", 1, True, frames),))
    return replace(found, collectives=found.collectives._replace(stacks=stacks, activity=activity))


def judged(*reports: RankReport) -> JobVerdict:
    return JobVerdict.of(Job(5678, ranks(*reports)))


ELSEWHERE = at(2, Frame("/job/loader.py", 8, "load"))
WAITING = [at(rank, *IN_ALL_REDUCE) for rank in (0, 1)]


def test_operation_that_is_not_recorded() -> None:
    """Ranks inside torch.distributed wait for the others, whatever the recorder has."""
    verdict = judged(*WAITING, ELSEWHERE)
    assert (WAIT,) == verdict.unrecorded
    assert verdict.is_hanging
    (sentence,) = describe_job(verdict)
    assert (
        "ranks 0-1 are in all_reduce at train.py:90 in step, which torch has not recorded as waiting: they may be "
        "connecting to the other ranks; rank 2 is at loader.py:8 in load (blocked in a call)"
    ) == sentence


def test_rank_that_a_debugger_holds() -> None:
    """Of a rank that is in no such call, a debugger that has stopped it is named."""
    (sentence,) = describe_job(judged(*WAITING, at(2, Frame("/job/train.py", 1, "<module>"), activity="stopped")))
    assert sentence.endswith("; rank 2 is stopped by a debugger at train.py:1 in <module>")


def test_operation_that_is_recorded() -> None:
    """A rank whose wait a group shows is not named twice."""
    known = replace(WAITING[0], collectives=WAITING[0].collectives._replace(groups=(group(6, 5),)))
    verdict = judged(known, ELSEWHERE)
    assert () == verdict.unrecorded
    assert verdict.groups


def test_wait_for_the_device() -> None:
    """Ranks that synchronize with their device wait for what runs there, perhaps a CUDA graph; that may be healthy."""
    verdict = judged(at(0, *IN_SYNCHRONIZE), ELSEWHERE)
    assert not verdict.is_hanging
    (sentence,) = describe_job(verdict)
    assert sentence.startswith("rank 0 is waiting for the device in synchronize at train.py:90 in step; rank 2 is at ")


def test_wait_for_one_other_rank() -> None:
    """A point-to-point operation may be the next of many at the same line, so it is named and is not a hang."""
    in_recv = (MAIN, Frame(f"{LIBRARY}torch/distributed/distributed_c10d.py", 2200, "recv"))
    verdict = judged(at(0, *in_recv), ELSEWHERE)
    assert not verdict.is_hanging
    (sentence,) = describe_job(verdict)
    assert sentence.startswith("rank 0 is in recv at train.py:90 in step, which is not a collective operation; rank 2 ")


@pytest.mark.parametrize(("rank", "is_hanging"), [(0, False), (None, True)])
def test_recorder_that_cannot_be_read(rank: int | None, is_hanging: bool) -> None:
    """If progress of the ranks would not show, nothing hangs; before the first process group, none is possible."""
    waiting = WAITING[0]
    assert waiting.collectives is not None
    found = waiting.collectives._replace(rank=rank, groups=(), problem="torch 2.4.1 has no flight recorder")
    assert is_hanging == judged(replace(waiting, collectives=found), ELSEWHERE).is_hanging


@pytest.mark.parametrize(
    "moving",
    [
        at(0, *IN_ALL_REDUCE, activity="running Python"),
        at(0, *IN_ALL_REDUCE, activity="stopped"),
        at(0, *IN_ALL_REDUCE, Frame("/job/hook.py", 4, "log")),
        at(0, MAIN, Frame(f"{LIBRARY}torch/distributed/checkpoint/state_dict.py", 9, "save")),
        at(0, MAIN, Frame(f"{LIBRARY}other/streams.py", 9, "synchronize")),
    ],
)
def test_ranks_that_do_not_wait(moving: RankReport) -> None:
    """A rank that runs Python, is stopped, runs the job's code inside the call, or is in another file does not wait."""
    assert () == judged(moving, ELSEWHERE).unrecorded


def test_brief_wait() -> None:
    """Only ranks that are still in the same call, and whose groups have not moved in between, are waiting."""
    first = judged(*WAITING, ELSEWHERE)
    assert MIN_AGE == first.patience
    assert (WAIT,) == judged(*WAITING, ELSEWHERE).that_still_wait(first).unrecorded
    later = judged(at(0, *IN_ALL_REDUCE, completed=6), WAITING[1], ELSEWHERE).that_still_wait(first)
    assert [(1,)] == [wait.ranks for wait in later.unrecorded]
    gone = judged(at(0, *IN_SYNCHRONIZE), at(1, MAIN), ELSEWHERE).that_still_wait(first)
    assert () == gone.unrecorded


def test_wait_for_a_rank_that_a_debugger_holds() -> None:
    """Ranks that may wait for a stopped rank are named, and nothing hangs."""
    held = replace(ELSEWHERE, target=TargetInfo(5680, rank=2, state=State.WAITING))
    verdict = judged(*WAITING, held)
    assert verdict.unrecorded
    assert not verdict.is_hanging
