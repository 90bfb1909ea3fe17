"""Facts about questions that each process answers for itself."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pytest

from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.questions import NodeReplies, Question, Reply
from relay_core.errors import UsageError
from relay_core.records import encode, parse


@dataclass(frozen=True)
class ReadClock(Question):
    name: ClassVar[str] = "clock"
    activity: ClassVar[str] = "reading the clock of"
    zone: str = ""


class Clock(NamedTuple):
    seconds: int = 0


def test_a_body_is_checked() -> None:
    """The time limit of a question is bounded, and invalid ranks are an error before any process is asked."""
    question = ReadClock.parse_body({"zone": "CET", "ranks": "0-3", "seconds": 1e9})
    assert ReadClock("CET", ranks="0-3", seconds=60) == question
    assert 5 == ReadClock.parse_body({"seconds": 0}).seconds
    assert [True, False] == [question.selects(rank, 5678) for rank in (3, 4)]
    with pytest.raises(UsageError):
        ReadClock.parse_body({"ranks": "x"})


def test_the_log_names_the_ranks_and_the_user() -> None:
    """A question appears in the job's log with what it does, for which ranks and for whom."""
    assert "reading the clock of ranks 0-3 for bob" == ReadClock(ranks="0-3", user="bob").log_line()


def test_replies_contain_answers_unread() -> None:
    """The answer of a process passes the agent unchanged, and the client reads it; a silent process has none."""
    replies = NodeReplies((Reply(5678, 0, {"seconds": 7}), Reply(5679, 1, error="no answer", is_silent=True)))
    wire = encode(replies)
    assert {
        "processes": [
            {"port": 5678, "rank": 0, "answer": {"seconds": 7}},
            {"port": 5679, "rank": 1, "error": "no answer", "is_silent": True},
        ]
    } == wire
    assert replies == parse(NodeReplies, wire)
    assert [Clock(7), Clock()] == [reply.read(Clock) for reply in replies.processes]


def test_results_have_their_process() -> None:
    """A record of a result gets the process as its member, and the error if the process has not answered."""
    members = (Member(5678, 0),)
    answered, silent = Reply(5678, 0, {"text": "1"}), Reply(5678, 0, error="no", is_silent=True)
    assert Value(members, "1") == answered.result(Value)
    assert Value(members, error="NO", is_silent=True) == silent.result(Value, str.upper)
