"""The agent's part of `relay_core.dap.ahead`: it asks debugpy what the editor is going to ask.

It does so only for a client that has sent a plan, and it never changes, delays or drops a byte of the editor's or of
debugpy's: it adds requests of its own, whose answers it takes out again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from relay_core.dap.ahead import MAX_PLAN, NEWS, PLAN, Question, Stop, arguments_of, changes_nothing, parse
from relay_core.dap.cutting import MAX_WHOLE, Cutter
from relay_core.dap.framing import MAX_BODY, Message, encode, encode_body
from relay_core.net.interposed_stream import Interposer

__all__ = ["AskAhead"]

FIRST_SEQ = 1_000_000_000
"""No editor sends so many requests, so none of its numbers is one of ours."""
SLOW = 0.1
"""Seconds for an answer. Most take 1 ms, but the text of variables may take long to make, and somebody who steps on
would wait for it."""
LONG = 64 * 1024
"""Bytes of an answer. VS Code's are some 3 KiB; longer ones are not worth sending before somebody wants them."""
PATIENCE = 3
"""Answers, slow or long, one after the other, to a question that is not asked ahead any more then."""
_NEWS = b'{"seq":0,"type":"event","event":"%b","body":{"after":%d,"asked":[%b],"answered":[%b]}}'


class AskAhead(Interposer):
    """One debugger's connection."""

    def __init__(self) -> None:
        self._from_editor = Cutter()
        self._from_debugger = Cutter()
        self._after = 0
        """Number of the last request of the editor that may change something."""
        self._plan: list[_Planned] = []
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
            request = parse(piece.body, "request") or {}
            if request.get("command") == PLAN:
                self._plan = _parse_plan(request)
                continue
            if not changes_nothing(request):
                self._after = request.get("seq", 0)
                self._round = None  # the editor may let the process go on: nothing more is asked about this stop
            onward.append(piece.raw)
        return b"".join(onward)

    def written(self, data: bytes, now: float) -> tuple[bytes, bytes]:
        """Take bytes of debugpy; return those for the client, and requests for debugpy."""
        onward, requests = [], b""
        self._from_debugger.max_whole = MAX_BODY if self._asked else MAX_WHOLE  # no answer of ours may slip through
        for piece in self._from_debugger.feed(data):
            told, asked = self._hear(piece.raw, piece.body, now)
            onward.append(told)
            requests += asked
        return b"".join(onward), requests

    def arrived_end(self) -> bytes:
        """Return what the client has begun to say."""
        return self._from_editor.end()

    def written_end(self) -> bytes:
        """Return what debugpy has begun to say."""
        return self._from_debugger.end()

    def _hear(self, raw: bytes, body: bytes, now: float) -> tuple[bytes, bytes]:
        """Return what a piece is to the client, and what to ask for next."""
        if self._asked and b'"response"' in body and (response := parse(body, "response")):
            asked = self._asked.pop(response["request_seq"], None)
            if asked is not None:
                return self._answered(asked, response, body, now)
        elif self._plan and b'"stopped"' in body and (event := parse(body, "event")):
            match event:
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    questions = [planned for planned in self._plan if planned.costly < PATIENCE]
                    self._round = round_ = _Round(Stop(thread), questions, self._after)
                    requests = self._ask(round_, now)
                    return raw + self._tell(round_), requests
        return raw, b""

    def _answered(self, asked: _Asked, response: Message, body: bytes, now: float) -> tuple[bytes, bytes]:
        costly = now - asked.at > SLOW or len(body) > LONG
        asked.planned.costly = asked.planned.costly + 1 if costly else 0
        round_, request = asked.round, asked.request
        round_.answers.append(body)
        if response.get("success") is True:
            round_.stop.learn(request["command"], request["arguments"], response.get("body"))
        else:
            round_.questions.clear()  # the process has gone on
        requests = self._ask(round_, now) if round_ is self._round else b""
        return self._tell(round_), requests

    def _ask(self, round_: _Round, now: float) -> bytes:
        """Return requests for all that can be asked now."""
        requests = []
        for planned in list(round_.questions) if self._from_editor.at_boundary else ():
            arguments = round_.stop.arguments(planned.question)
            if arguments is not None:
                round_.questions.remove(planned)
                self._seq += 1
                command = planned.question.command
                request = {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
                self._asked[self._seq] = _Asked(round_, planned, request, now)
                round_.asked.append(request)
                requests.append(encode(request))
        return b"".join(requests)

    def _tell(self, round_: _Round) -> bytes:
        """Return what the client is to be told now.

        Each message is work for debugpy's neighbours, so answers that come within a moment are told together: all but
        the variables, whose text may take long to make.
        """
        under_way = (asked.request["command"] for asked in self._asked.values() if asked.round is round_)
        more_to_come = round_ is self._round and any(command != "variables" for command in under_way)
        if round_.answers and more_to_come and sum(map(len, round_.answers)) <= LONG:
            return b""
        asked, round_.asked = b",".join(json.dumps(request).encode() for request in round_.asked), []
        answers, round_.answers = b",".join(round_.answers), []
        return encode_body(_NEWS % (NEWS.encode(), round_.after, asked, answers)) if asked or answers else b""


@dataclass(eq=False)
class _Planned:
    """A question of the plan."""

    question: Question
    costly: int = 0
    """Answers to it that were slow or long, since the last that was not."""


@dataclass(eq=False)
class _Round:
    """One stop."""

    stop: Stop
    questions: list[_Planned]
    """What has not been asked."""
    after: int
    """Number of the last request of the editor before it that may change something; the next ends the round."""
    asked: list[Message] = field(default_factory=list)
    """Requests that the client has not been told of."""
    answers: list[bytes] = field(default_factory=list)
    """Answers that it has not been told: JSON, as it came."""


@dataclass(eq=False)
class _Asked:
    """A request under way."""

    round: _Round
    planned: _Planned
    request: Message
    at: float
    """When it was made."""


def _parse_plan(request: Message) -> list[_Planned]:
    """Return the questions of a plan."""
    questions = arguments_of(request).get("questions")
    found = [Question.parse(question) for question in questions] if isinstance(questions, list) else []
    return [_Planned(question) for question in found if question][:MAX_PLAN]
