"""Facts about the sentences of a verdict. Those of real jobs are in tests/e2e/test_hang.py."""

from dataclasses import replace

from relay_client.hang.output import describe_job
from relay_client.hang.reports import Job, RankReport
from relay_client.hang.verdict import JobVerdict
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.agent_api.collectives import GroupRecord, ProcessCollectives, RasCommunicator, RasStatus
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from tests.unit.relay_client.hang.test_verdict import group, ranks, report

ALL_REDUCE = Frame("/usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3068, "all_reduce")


def at(
    rank: int, place: tuple[str, int, str], *groups: GroupRecord, activity: str = "blocked", **fields: str
) -> RankReport:
    """Return the report of a rank whose main thread is at this file, line and function, or in a call from there."""
    frames = (Frame(*place), ALL_REDUCE) if place == STEP else (Frame(*place),)
    stacks = ProcessStacks(how="helper thread", threads=(ThreadStack("MainThread", 1, True, frames),))
    found = report(rank, *groups)
    assert found.collectives is not None
    return replace(found, collectives=found.collectives._replace(stacks=stacks, activity=activity, **fields))


def sentences(*reports: RankReport, ras: tuple[RasStatus, ...] = ()) -> list[str]:
    """Return the paragraphs about a job."""
    return describe_job(JobVerdict.of(Job(5678, ranks(*reports), ras)))


STEP, LOAD = ("/job/train.py", 90, "step"), ("/job/loader.py", 88, "load_batch")
WAITING = [at(rank, STEP, group(6, 5)) for rank in (0, 1, 3)]
HEAD = (
    "group 'default' (4 ranks): collective #6 all_reduce [16] float32; "
    "entered by ranks 0-1,3 at train.py:90 in step (12 s ago); "
)


def with_rank_2(found: RankReport) -> str:
    """Return the paragraph about a group whose rank 2 is this one."""
    return sentences(*WAITING, found)[0].removeprefix(HEAD)


def test_missing_rank() -> None:
    """The operation, who has entered it, since when, who is missing, and what that is doing."""
    assert "missing rank 2, which is at loader.py:88 in load_batch (running Python)" == with_rank_2(
        at(2, LOAD, group(5, 5), activity="running Python")
    )


def test_states_of_a_missing_rank() -> None:
    """A rank that a debugger holds, or that has crashed, is described so."""
    behind = at(2, LOAD, group(5, 5))
    where = "at loader.py:88 in load_batch"
    stopped = at(2, LOAD, group(5, 5), activity="stopped")
    crashed = replace(behind, target=TargetInfo(5680, rank=2, state=State.CRASHED, detail="ValueError: odd"))
    waits = replace(behind, target=TargetInfo(5680, rank=2, state=State.WAITING, detail="breakpoint() at a.py:1"))
    assert f"missing rank 2, which is stopped by a debugger {where}" == with_rank_2(stopped)
    assert f"missing rank 2, which is held at an exception (ValueError: odd) {where}" == with_rank_2(crashed)
    assert f"missing rank 2, which is waiting for a debugger (breakpoint() at a.py:1) {where}" == with_rank_2(waits)


def test_rank_that_holds_the_gil() -> None:
    """A rank that only a signal could read is not known, with its place."""
    found = at(2, LOAD)
    assert found.collectives is not None
    stacks = found.collectives.stacks._replace(how="faulthandler")
    silent = replace(
        found, silence="did not answer within 1.5 s", collectives=found.collectives._replace(stacks=stacks)
    )
    assert (
        "unknown: rank 2, which did not answer within 1.5 s and is at loader.py:88 in load_batch (C code holds the GIL)"
    ) == with_rank_2(silent)
    assert 1 == len(sentences(*WAITING, silent))
    assert ["rank 2 did not answer within 1.5 s"] == sentences(silent)


def test_several_missing_ranks() -> None:
    """Ranks that do the same are named together."""
    waiting = [at(rank, STEP, group(6, 5)) for rank in (0, 1)]
    behind = [at(rank, LOAD, group(5, 5)) for rank in (2, 3)]
    (sentence,) = sentences(*waiting, *behind)
    assert sentence.endswith("; missing ranks 2-3, which are at loader.py:88 in load_batch (blocked in a call)")
    dead = [RankReport(rank, silence="was killed by SIGKILL", has_ended=True) for rank in (2, 3)]
    (sentence,) = sentences(*waiting, *dead)
    assert sentence.endswith("; missing ranks 2-3, which were killed by SIGKILL")


def test_rank_that_nobody_knows() -> None:
    """A rank without a target is not known."""
    unknown = (
        "unknown: rank 2, which is not registered (ended, running without relay-debug, or on a node that was not found)"
    )
    assert f"{HEAD}{unknown}" == sentences(*WAITING)[0]


def test_everybody_is_there() -> None:
    """If all ranks have entered the same operation, a transfer is slow or something is stuck."""
    (sentence,) = sentences(*(at(rank, STEP, group(6, 5, (0, 1))) for rank in (0, 1)))
    assert (
        "group 'default' (2 ranks): collective #6 all_reduce [16] float32; entered by all 2 ranks at train.py:90 in "
        "step (12 s ago); not complete in ranks 0-1: the operation is slow, or a device or the network is stuck"
    ) == sentence


def test_slow_operation_of_a_slow_job() -> None:
    """If operations have taken as long before, that is remarked."""
    usual = group(6, 5, (0, 1))._replace(longest_gap=8.0)
    (sentence,) = sentences(*(at(rank, STEP, usual) for rank in (0, 1)))
    assert sentence.endswith(
        "; not complete in ranks 0-1, which is usual here: 8 s have passed between two operations of this group"
    )


def test_ranks_that_have_returned_from_the_call() -> None:
    """The place of the call and the place of the wait are different ones; without the former, only the latter is."""
    log = ("/job/train.py", 23, "log_loss")
    entered = group(6, 5)
    called = entered._replace(operations=(entered.operations[-1]._replace(called="train.py:21 in reduce"),))
    head, now = (
        "group 'default' (4 ranks): collective #6 all_reduce [16] float32; entered by ranks 0-1,3",
        "train.py:23",
    )
    missing = "missing rank 2, which is at loader.py:88 in load_batch (blocked in a call)"
    behind = at(2, LOAD, group(5, 5))
    assert [
        f"{head} at train.py:21 in reduce (12 s ago), now at {now} in log_loss (running in C code); {missing}"
    ] == sentences(*(at(rank, log, called, activity="running") for rank in (0, 1, 3)), behind)
    assert [f"{head} (12 s ago), now at {now} in log_loss (blocked in a call); {missing}"] == sentences(
        *(at(rank, log, entered) for rank in (0, 1, 3)), behind
    )


def test_ranks_that_may_wait_for_the_device() -> None:
    """A call without a frame, such as `item()`, may wait for the device of a rank that uses NCCL."""
    reading = [at(rank, LOAD, group(5, 5)._replace(recorder="nccl"), activity="running") for rank in (0, 1)]
    elsewhere = at(2, ("/job/train.py", 7, "save"), group(5, 5)._replace(recorder="nccl"), activity="running Python")
    (text,) = sentences(*reading, elsewhere)
    assert (
        "torch has recorded no collective in which a rank is waiting; ranks may be waiting for their device: ranks 0-1 "
        "are at loader.py:88 in load_batch (running in C code); rank 2 is at train.py:7 in save (running Python)"
    ) == text
    assert [
        "no rank is waiting in a collective; run 'relay-client stacks' to see what each rank is doing"
    ] == sentences(elsewhere)
    many = [at(rank, ("/job/a.py", rank, "f"), group(5, 5)._replace(recorder="nccl")) for rank in range(12)]
    assert sentences(*many)[0].endswith("; rank 7 is at a.py:7 in f (blocked in a call); 4 other ranks are elsewhere")


def test_completed_operation_that_differs() -> None:
    """Ranks that passed different shapes to a completed operation are named, whatever else there is."""
    odd = group(6, 6, inputs="[17] float32")
    remark, nothing = sentences(*(at(rank, LOAD, group(6, 6)) for rank in (0, 1, 3)), at(2, LOAD, odd))
    assert (
        "group 'default' (4 ranks): collective #3 is complete, but differs between ranks, so its result is wrong: "
        "ranks 0-1,3 entered all_reduce [16] float32, rank 2 entered all_reduce [17] float32"
    ) == remark
    assert nothing.startswith("no rank is waiting in a collective; ")


def test_ranks_at_a_breakpoint() -> None:
    """A job all of whose ranks a debugger has stopped does not hang."""
    assert ["all 4 ranks are stopped by a debugger or waiting for one: this is not a hang"] == sentences(
        *(at(rank, STEP, group(5, 5), activity="stopped") for rank in range(4))
    )


def test_nothing_waits() -> None:
    """Without a rank that waits, another command shows what the ranks do."""
    assert [
        "no rank is waiting in a collective; run 'relay-client stacks' to see what each rank is doing"
    ] == sentences(*(at(rank, LOAD, group(5, 5)) for rank in range(4)))


def test_problems() -> None:
    """Ranks whose groups cannot be read have the reason, equal ones together."""
    without = [RankReport(rank, collectives=ProcessCollectives(problem="torch is not imported")) for rank in (0, 1)]
    assert ["ranks 0-1: torch is not imported"] == sentences(*without)


def test_debugger_that_holds_the_others_back() -> None:
    """A rank that waits for a debugger is named with its port, also before a process group exists."""
    early = RankReport(1, collectives=ProcessCollectives(problem="torch.distributed has no process group"))
    without_torch = ProcessCollectives(problem="torch is not imported")
    waits = [
        RankReport(rank, TargetInfo(5678 + rank, rank=rank, state=State.WAITING), without_torch) for rank in (0, 2)
    ]
    assert [
        "rank 0 is waiting for a debugger on port 5678; the other rank may be waiting for that rank",
        "rank 1: torch.distributed has no process group",
    ] == sentences(waits[0], early)
    assert (
        "ranks 0,2 are waiting for a debugger on ports 5678,5680; the other rank may be waiting for those ranks"
        == (sentences(*waits, early)[0])
    )
    assert ["all 2 ranks are stopped by a debugger or waiting for one: this is not a hang"] == sentences(*waits)


def test_ras() -> None:
    """What NCCL RAS reports is added, with the communicator."""
    communicator = RasCommunicator("ae94", 2, ("rank 1 is not responding", "rank 0 aborted"))
    status = RasStatus("2.29.1", (communicator,))
    assert ["NCCL RAS: communicator ae94 (2 ranks): rank 1 is not responding; rank 0 aborted"] == sentences(
        ras=(status,)
    )
    assert ["NCCL RAS did not answer within 3 s"] == sentences(
        ras=(RasStatus(error="NCCL RAS did not answer within 3 s"),)
    )
