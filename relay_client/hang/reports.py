"""What is known about each rank of each job, from the responses of all agents; sans-IO."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relay_client.agents.requests import NodeReply
from relay_client.agents.roster import AbsentRank, absent_ranks
from relay_client.ranks.view import Kind, RankView, rank_view
from relay_client.stacks import own_frame
from relay_core.agent_api.announcement import TargetInfo
from relay_core.agent_api.collectives import ProcessCollectives, RasStatus, is_collective
from relay_core.agent_api.questions import NO_ANSWER, Reply
from relay_core.agent_api.stacks import ProcessStacks, ThreadStack
from relay_core.foreign import escape_controls
from relay_core.records import parse, parse_or_none

NOT_REGISTERED = "is not registered (ended, running without relay-debug, or on a node that was not found)"


@dataclass(frozen=True)
class RankReport:
    """One rank of a job."""

    rank: int
    """The global rank in `torch.distributed` or, if that is unknown, the rank that the launcher has set."""
    target: TargetInfo | None = None
    """The rank's announcement; None if no agent announces the rank."""
    collectives: ProcessCollectives | None = None
    """The rank's answer; None if the rank has not answered."""
    silence: str = ""
    """Why the rank's groups are unknown, as the end of a sentence."""
    lost: str = ""
    """How the connection to its agent was lost, if its groups are unknown because of that."""
    has_ended: bool = False

    @property
    def main(self) -> ThreadStack | None:
        """The rank's main thread; None if no method could read its stack."""
        threads = self.collectives.stacks.threads if self.collectives is not None else ()
        return next((thread for thread in threads if thread.frames), None)

    @property
    def place(self) -> str:
        """The innermost frame of the user's own code: `train.py:88 in load_batch`; "" if unknown."""
        if self.main is None:
            return ""
        frame = own_frame(self.main)
        return f"{frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line} in {frame.function}"

    @property
    def is_in_collective(self) -> bool:
        """Whether the main thread is inside a function of `torch.distributed`."""
        return self.main is not None and any(map(is_collective, self.main.frames))

    @property
    def activity(self) -> str:
        """What the main thread is doing: a word of `ProcessCollectives.activity`."""
        return self.collectives.activity if self.collectives is not None else ""

    @property
    def view(self) -> RankView:
        """What the rank is doing according to its announcement."""
        return rank_view(self.target) if self.target is not None else RankView(Kind.UNKNOWN)

    @property
    def is_stopped(self) -> bool:
        """Whether a debugger has stopped the rank, or the rank is waiting for a debugger."""
        return self.view.kind in {Kind.WAITING, Kind.CRASHED, Kind.STOPPED} or self.activity == "stopped"


@dataclass(frozen=True)
class Job:
    """The ranks of one job. Jobs on one hybrid connection have different base ports."""

    base_port: int
    """Logical port of rank 0."""
    ranks: Mapping[int, RankReport] = field(default_factory=dict)
    """By global rank, in ascending order."""
    ras: tuple[RasStatus, ...] = ()
    """What NCCL RAS reports on the job's nodes, with equal answers listed once."""

    @property
    def script(self) -> str:
        """The name of the job's script; "" if unknown."""
        return next((report.target.script for report in self.ranks.values() if report.target is not None), "")

    @property
    def ports(self) -> list[int]:
        """The logical ports of its ranks."""
        return [self.base_port + rank for rank in self.ranks]


def read_jobs(replies: Iterable[NodeReply], ports: Collection[int] | None = None) -> list[Job]:
    """Return the jobs in the agents' responses, by base port.

    Args:
        replies: One for each agent; an error is the end of a sentence: "did not answer within 5 s", or the whole
            sentence about a lost connection.
        ports: Logical ports; jobs without a rank on one of them are left out. None for all.
    """
    found: dict[int, dict[int, RankReport]] = {}
    ras: dict[int, list[RasStatus]] = {}
    replies = list(replies)
    for reply in replies:
        bases = set()
        for base, report in _reports(reply):
            found.setdefault(base, {})[report.rank] = report
            bases.add(base)
        if (status := parse_or_none(RasStatus, reply.replies.node, escape_controls)) is not None:
            for base in bases:
                ras.setdefault(base, []).append(status)
    _add_absent(found, absent_ranks(reply.agent for reply in replies))
    jobs = [
        Job(base, dict(sorted(ranks.items())), tuple(dict.fromkeys(ras.get(base, ()))))
        for base, ranks in sorted(found.items())
    ]
    return [job for job in jobs if ports is None or not set(ports).isdisjoint(job.ports)]


def _reports(reply: NodeReply) -> Iterator[tuple[int, RankReport]]:
    """Yield the base port and the report of each rank on a node, including ranks that a long announcement omits."""
    answers = {answer.port: answer for answer in reply.replies.processes}
    for target in reply.agent.targets:
        launched = target.rank or 0
        if target.port not in answers:
            silence = reply.error or "did not answer (possibly only just started, or already ended)"
            lost = reply.error if reply.is_lost else ""
            silence = f"cannot be queried: {lost}" if lost else silence
            yield target.port - launched, RankReport(launched, target, silence=silence, lost=lost)
    targets = {target.port: target for target in reply.agent.targets}
    for port, answer in answers.items():
        found, launched = _collectives_in(answer), answer.rank or 0
        rank = launched if found.rank is None else found.rank
        yield port - launched, RankReport(rank, targets.get(port), found, _silence(answer.error))


def _collectives_in(reply: Reply) -> ProcessCollectives:
    """Return the answer of a process or, without one, what its agent has read of its main thread."""
    if reply.stacks is not None:
        return ProcessCollectives(stacks=parse(ProcessStacks, reply.stacks, escape_controls))
    return reply.read(ProcessCollectives, escape_controls)


def _silence(error: str) -> str:
    """Return why an answer is missing, as the end of a sentence; "" if it is not."""
    if error.startswith(NO_ANSWER):
        return f"did not answer{error.removeprefix(NO_ANSWER)}"
    return error and f"failed: {error}"


def _add_absent(jobs: Mapping[int, dict[int, RankReport]], absent: Iterable[AbsentRank]) -> None:
    """Add the ranks that no agent announces; unless they have ended, they may have entered a collective."""
    for one in absent:
        base, silence = one.port - one.rank, one.reason if one.has_ended else NOT_REGISTERED
        if base in jobs:
            jobs[base].setdefault(one.rank, RankReport(one.rank, silence=silence, has_ended=one.has_ended))
