"""The agent's part of `relay_core.dap.ahead`: it asks debugpy what the editor is going to ask.

It does so only for a client that has sent a plan, and it never changes, delays or drops a byte of the editor's or of
debugpy's: it adds requests of its own, whose answers it takes out again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from relay_core.dap.ahead import ANSWER, MAX_ANSWER, MAX_PLAN, PLAN, QUESTIONS, Question, Stop, arguments_of, parse
from relay_core.dap.cutting import MAX_WHOLE, Cutter
from relay_core.dap.framing import MAX_BODY, Message, encode, encode_body
from relay_core.net.interposed_stream import Interposer

__all__ = ["AskAhead"]

FIRST_SEQ = 1_000_000_000
"""No editor sends so many requests, so none of its numbers is one of ours."""
_ANSWERS = b'{"seq":0,"type":"event","event":"%b","body":{"answers":[%b],"left":%d}}'


class AskAhead(Interposer):
    """One debugger's connection."""

    def __init__(self) -> None:
        self._from_editor = Cutter()
        self._from_debugger = Cutter()
        self._plan: list[Question] = []
        self._round: _Round | None = None
        self._seq = FIRST_SEQ
        self._asked: dict[int, _Asked] = {}
        """What has not been answered, by number."""

    def __repr__(self) -> str:
        return f"<AskAhead plan={len(self._plan)} asked={len(self._asked)}>"

    def arrived(self, data: bytes, now: float) -> bytes:  # noqa: ARG002 - nothing here takes time
        """Take bytes of the client; return those for debugpy."""
        onward: list[bytes] = []
        for piece in self._from_editor.feed(data):
            plan = _parse_plan(piece.body) if PLAN.encode() in piece.body else None
            if plan is not None:
                self._plan = plan
                continue
            if self._round and self._round.questions and not _is_question(piece.body):
                self._round = None  # the editor may let the process go on: nothing more is asked about this stop
            onward.append(piece.raw)
        return b"".join(onward)

    def written(self, data: bytes, now: float) -> tuple[bytes, bytes]:  # noqa: ARG002 - as above
        """Take bytes of debugpy; return those for the client, and requests for debugpy."""
        onward, requests = [], b""
        self._from_debugger.max_whole = MAX_BODY if self._asked else MAX_WHOLE  # no answer of ours may slip through
        for piece in self._from_debugger.feed(data):
            told, asked = self._hear(piece.raw, piece.body)
            onward.append(told)
            requests += asked
        return b"".join(onward), requests

    def arrived_end(self) -> bytes:
        """Return what the client has begun to say."""
        return self._from_editor.end()

    def written_end(self) -> bytes:
        """Return what debugpy has begun to say."""
        return self._from_debugger.end()

    def _hear(self, raw: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Return what a piece is to the client, and what to ask for next."""
        if self._asked and b'"response"' in body and (response := parse(body, "response")):
            asked = self._asked.pop(response["request_seq"], None)
            if asked is not None:
                return self._answered(asked, response, body)
        elif self._plan and b'"stopped"' in body and (event := parse(body, "event")):
            match event:
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    self._round = round_ = _Round(
                        Stop(thread), list(self._plan), sum(question.at_once for question in self._plan)
                    )
                    requests = self._ask(round_)
                    return raw + round_.tell(), requests
        return raw, b""

    def _answered(self, asked: _Asked, response: Message, body: bytes) -> tuple[bytes, bytes]:
        round_, question, request = asked
        if round_ is not self._round:
            return b"", b""  # it comes too late: the process has stopped somewhere else meanwhile
        round_.asked.remove(question)
        if response.get("success") is not True:
            round_.questions.clear()  # the process has gone on
            return round_.tell(), b""
        round_.stop.learn(request["command"], request["arguments"], response.get("body"))
        if len(body) <= MAX_ANSWER:
            round_.answers.append(b'{"request":%b,"response":%b}' % (json.dumps(request).encode(), body))
        requests = self._ask(round_)
        return round_.tell(), requests

    def _ask(self, round_: _Round) -> bytes:
        """Return requests for all that can be asked now; what is not wanted at once waits for what is."""
        requests = []
        hurry = round_.wanted_at_once > 0
        for question in list(round_.questions) if self._from_editor.at_boundary else ():
            arguments = round_.stop.arguments(question)
            if arguments is not None and (question.at_once or not hurry):
                round_.questions.remove(question)
                round_.asked.append(question)
                self._seq += 1
                request = {"seq": self._seq, "type": "request", "command": question.command, "arguments": arguments}
                self._asked[self._seq] = _Asked(round_, question, request)
                requests.append(encode(request))
        if not round_.asked:
            round_.questions.clear()  # nothing will ever be known about these
        return b"".join(requests)


@dataclass
class _Round:
    """The questions of one stop."""

    stop: Stop
    questions: list[Question]
    """What has not been asked."""
    left: int
    """What the client knows about the number of answers that are wanted at once and still to come."""
    asked: list[Question] = field(default_factory=list)
    """What has not been answered."""
    answers: list[bytes] = field(default_factory=list)
    """What the client has not been told: JSON, as it came."""

    @property
    def wanted_at_once(self) -> int:
        """Answers of that kind that are still to come."""
        return sum(question.at_once for question in (*self.questions, *self.asked))

    def tell(self) -> bytes:
        """Return what the client is to be told now.

        The less the better, as each message is work for debugpy's neighbours: what is wanted at once in one, the rest
        in another. But nothing waits for variables, whose text may take long to make.
        """
        left = self.wanted_at_once
        is_last = not self.questions and all(question.command == "variables" for question in self.asked)
        if not (is_last and self.answers) and not (self.left and not left):
            return b""
        self.left = left
        answers, self.answers = b",".join(self.answers), []
        return encode_body(_ANSWERS % (ANSWER.encode(), answers, left))


class _Asked(NamedTuple):
    """A question under way."""

    round: _Round
    question: Question
    request: Message


def _is_question(body: bytes) -> bool:
    return (parse(body, "request") or {}).get("command") in QUESTIONS


def _parse_plan(body: bytes) -> list[Question] | None:
    """Return the questions of a plan, or None if this is no plan."""
    request = parse(body, "request")
    if request is None or request.get("command") != PLAN:
        return None
    questions = arguments_of(request).get("questions")
    found = [Question.parse(question) for question in questions] if isinstance(questions, list) else []
    return [question for question in found if question][:MAX_PLAN]
