"""Facts about what is known of each rank, from the responses of agents."""

from relay_client.hang.reports import NOT_REGISTERED, NodeReply, RankReport, read_jobs
from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, Ending, State, TargetInfo
from relay_core.agent_api.collectives import ProcessCollectives, RasStatus
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.records import encode

KILLED = "was killed by SIGKILL (the usual cause is lack of memory)"


def targets(*ranks: int, base: int = 5678, world: int = 4) -> tuple[TargetInfo, ...]:
    return tuple(TargetInfo(base + rank, rank=rank, world=world, script="train.py") for rank in ranks)


def reply(*found: TargetInfo, endings: tuple[Ending, ...] = (), ras: RasStatus | None = None) -> NodeReply:
    """Return the response of an agent whose processes all answer."""
    answers = tuple(Reply(target.port, target.rank, {}) for target in found)
    node = None if ras is None else encode(ras)
    return NodeReply(AgentInfo(AgentId("a"), targets=found, endings=endings), NodeReplies(answers, node))


def test_jobs_on_one_hybrid_connection() -> None:
    """Jobs are distinguished by their base ports, also on one node, and chosen by ports."""
    replies = [reply(*targets(0, 1), *targets(0, base=6000, world=1)), reply(*targets(2, 3))]
    assert [(5678, [0, 1, 2, 3]), (6000, [0])] == [(job.base_port, list(job.ranks)) for job in read_jobs(replies)]
    assert [6000] == [job.base_port for job in read_jobs(replies, [6000, 6001])]
    assert ([5678, 5679, 5680, 5681], "train.py") == (read_jobs(replies)[0].ports, read_jobs(replies)[0].script)


def test_rank_in_torch() -> None:
    """The rank that `torch.distributed` has given is used, if it differs from the launcher's."""
    agent = AgentInfo(AgentId("a"), targets=targets(0, world=1))
    (job,) = read_jobs([NodeReply(agent, NodeReplies((Reply(5678, 0, encode(ProcessCollectives(rank=7))),)))])
    assert [7] == list(job.ranks)


def test_ranks_that_an_announcement_has_no_room_for() -> None:
    """A rank that answers is known without an announcement."""
    agent = AgentInfo(AgentId("a"), targets=targets(0, world=2))
    answers = tuple(Reply(5678 + rank, rank, {}) for rank in (0, 1))
    (job,) = read_jobs([NodeReply(agent, NodeReplies(answers))])
    assert [(0, True), (1, False)] == [(rank, report.target is not None) for rank, report in job.ranks.items()]


def test_silent_agents_and_processes() -> None:
    """Each rank of an agent that does not answer has the reason, and so has a process that does not, and its stack."""
    silent = NodeReply(AgentInfo(AgentId("a"), targets=targets(0, 1)), error="did not answer within 5 s")
    agent = AgentInfo(AgentId("b"), targets=targets(2, 3, 4, world=5))
    main = ThreadStack("MainThread", 1, True, (Frame("/job/loader.py", 88, "load_batch"),))
    stacks = encode(ProcessStacks(how="faulthandler", threads=(main,)))
    replies = (
        Reply(5680, 2, error="no answer within 1.5 s", is_silent=True, stacks=stacks),
        Reply(5682, 4, error="no recorder"),
    )
    (job,) = read_jobs([silent, NodeReply(agent, NodeReplies(replies))])
    assert {
        0: "did not answer within 5 s",
        1: "did not answer within 5 s",
        2: "did not answer within 1.5 s",
        3: "did not answer (possibly only just started, or already ended)",
        4: "failed: no recorder",
    } == {rank: report.silence for rank, report in job.ranks.items()}
    assert "loader.py:88 in load_batch" == job.ranks[2].place


def test_lost_connection() -> None:
    """A rank whose node cannot be reached has the reason; a text that only looks like one is none."""
    agent, reason = AgentInfo(AgentId("a"), targets=targets(0, world=1)), "no connection"
    lost, failed = NodeReply(agent, error=reason, is_lost=True), NodeReply(agent, error=f"cannot be queried: {reason}")
    found = [job.ranks[0] for each in (lost, failed) for job in read_jobs([each])]
    assert [(f"cannot be queried: {reason}", text) for text in (reason, "")] == [
        (report.silence, report.lost) for report in found
    ]


def test_ranks_that_no_agent_has_announced() -> None:
    """A rank below the world size is part of the job while its node is not found; it has not ended."""
    (job,) = read_jobs([reply(*targets(2, 3), endings=(Ending(5679, signal=9),))])
    found = {rank: (report.has_ended, report.silence) for rank, report in job.ranks.items()}
    assert {
        0: (False, NOT_REGISTERED),
        1: (True, KILLED),
        2: (False, ""),
        3: (False, ""),
    } == found


def test_ranks_that_have_ended() -> None:
    """A rank that has ended is known by how, unless it was started again; ports beyond the job's are not its ranks."""
    endings = (
        Ending(5679, signal=9),
        Ending(5680, status=3, error="ValueError: odd"),
        Ending(5681, signal=15),
        Ending(5690, status=1),
    )
    (job,) = read_jobs([reply(*targets(0, 3), endings=endings)])
    found = {rank: (report.has_ended, report.silence) for rank, report in job.ranks.items()}
    assert {
        0: (False, ""),
        1: (True, KILLED),
        2: (True, "ended with status 3: ValueError: odd"),
        3: (False, ""),
    } == found


def test_answers_of_ras_are_the_same_on_all_nodes() -> None:
    """The same answer from several nodes is kept once."""
    status = RasStatus("2.29.1")
    (job,) = read_jobs([reply(*targets(0), ras=status), reply(*targets(1), ras=RasStatus("2.29.1"))])
    assert (status,) == job.ras


def test_place() -> None:
    """The place of a rank is the innermost frame of the user's own code."""
    frames = (
        Frame("/job/train.py", 90, "step"),
        Frame("/venv/lib/python3.11/site-packages/torch/x.py", 5, "all_reduce"),
    )
    stacks = ProcessStacks(threads=(ThreadStack("MainThread", 1, True, frames),))
    assert "train.py:90 in step" == RankReport(0, collectives=ProcessCollectives(stacks=stacks)).place
    assert "" == RankReport(0).place


def test_who_is_stopped() -> None:
    """A rank is stopped by its debugger, or while it waits for one."""
    assert RankReport(0, collectives=ProcessCollectives(activity="stopped")).is_stopped
    assert RankReport(0, TargetInfo(1, state=State.WAITING)).is_stopped
    assert RankReport(0, TargetInfo(1, state=State.CRASHED)).is_stopped
    assert RankReport(0, TargetInfo(1, attachment=Attachment("bob@laptop", is_stopped=True))).is_stopped
    assert not RankReport(0, TargetInfo(1, state=State.RUNNING), ProcessCollectives(activity="blocked")).is_stopped


def test_text_from_a_job_cannot_direct_a_terminal() -> None:
    """Control characters in names are escaped."""
    answer = Reply(5678, 0, {"problem": "a\x1b[31mb"})
    (job,) = read_jobs([NodeReply(AgentInfo(AgentId("a")), NodeReplies((answer,)))])
    assert job.ranks[0].collectives == ProcessCollectives(problem="a\\x1b[31mb")
