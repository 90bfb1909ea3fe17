"""Which questions of a plan are asked at a stop, and what the client is told of them; see `relay_core.dap.prefetch`.

Nothing here reads or sends: who has debugpy's messages says what they are, and sends what is returned.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from relay_core.dap.messages import Event, Request, Response
from relay_core.dap.prefetch import MAX_PREFETCH_SET, PREFETCH_EVENT, RequestTemplate, Stop

__all__ = ["FIRST_SEQ", "LONG", "PATIENCE", "SLOW", "Asking", "Said"]

FIRST_SEQ = 1_000_000_000
"""No editor sends so many requests, so none of its numbers is one of ours."""
SLOW = 0.1
"""Seconds for an answer. Most take 1 ms, but the text of variables may take long to make, and somebody who steps on
would wait for it."""
LONG = 64 * 1024
"""Bytes of an answer. VS Code's are some 3 KiB; longer ones are not worth sending before somebody wants them."""
PATIENCE = 3
"""Answers, slow or long, one after the other, to a question that is not asked ahead any more then."""


@dataclass(frozen=True)
class Said:
    """What is to be sent now.

    Attributes:
        requests: To debugpy.
        news: To the client, if there is any.
    """

    requests: list[Request]
    news: Event | None


class Asking:
    """One debugger's connection; everything may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plan: list[_Planned] = []
        self._round: _Round | None = None
        self._seq = FIRST_SEQ
        self._asked: dict[int, _Asked] = {}
        """What has not been answered, by number."""

    def __repr__(self) -> str:
        return f"<Asking plan={len(self._plan)} asked={len(self._asked)}>"

    @property
    def is_waiting(self) -> bool:
        """Whether answers are to come."""
        return bool(self._asked)

    def has_asked(self, response: Response) -> bool:
        """Whether a response is the answer to one of these questions."""
        return response["request_seq"] in self._asked

    def plan(self, questions: object) -> None:
        """Take the client's plan; what is no question is left out."""
        found = [RequestTemplate.parse(question) for question in questions] if isinstance(questions, list) else []
        with self._lock:
            self._plan = [_Planned(question) for question in found if question][:MAX_PREFETCH_SET]

    def stopped(self, thread: int, after: int, now: float) -> Said:
        """A thread has stopped: the last round has ended, a new one begins.

        Args:
            thread: Its id.
            after: Number of the editor's last request before it that may change something.
            now: Seconds of any clock.
        """
        with self._lock:
            questions = [planned for planned in self._plan if planned.costly < PATIENCE]
            self._round = round_ = _Round(Stop(thread), questions, after)
            return self._say(round_, now)

    def end_round(self) -> None:
        """Ask and tell nothing new about this stop, because the process may go on."""
        with self._lock:
            self._round = None

    def answered(self, response: Response, size: int, now: float) -> Said:
        """Take the answer to one of these questions, of `size` bytes."""
        with self._lock:
            asked = self._asked.pop(response["request_seq"])
            costly = now - asked.at > SLOW or size > LONG
            asked.planned.costly = asked.planned.costly + 1 if costly else 0
            round_, request = asked.round, asked.request
            round_.answers.append(response)
            round_.size += size
            if response.get("success") is True:
                round_.stop.learn(request["command"], request["arguments"], response.get("body"))
            else:
                round_.questions.clear()  # the process has gone on
            return self._say(round_, now)

    def _say(self, round_: _Round, now: float) -> Said:
        requests = self._ask(round_, now) if round_ is self._round else []
        return Said(requests, self._tell(round_))

    def _ask(self, round_: _Round, now: float) -> list[Request]:
        """Return requests for all that can be asked now."""
        requests: list[Request] = []
        for planned in list(round_.questions):
            arguments = round_.stop.arguments(planned.question)
            if arguments is not None:
                round_.questions.remove(planned)
                self._seq += 1
                command = planned.question.command
                request: Request = {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
                self._asked[self._seq] = _Asked(round_, planned, request, now)
                requests.append(request)
        round_.untold += requests
        return requests

    def _tell(self, round_: _Round) -> Event | None:
        """Return what the client is to be told now.

        Each message is work for debugpy's neighbours, so answers that come within a moment are told together: all but
        the variables, whose text may take long to make.
        """
        asked: list[Request] = []
        if round_ is self._round:
            under_way = (asked.request["command"] for asked in self._asked.values() if asked.round is round_)
            if round_.answers and round_.size <= LONG and any(command != "variables" for command in under_way):
                return None
            asked, round_.untold = round_.untold, []
        never_told = {request["seq"] for request in round_.untold}
        answered = [response for response in round_.answers if response["request_seq"] not in never_told]
        round_.answers, round_.size = [], 0
        if not (asked or answered):
            return None
        body = {"after": round_.after, "asked": asked, "answered": answered}
        return {"seq": 0, "type": "event", "event": PREFETCH_EVENT, "body": body}


@dataclass(eq=False)
class _Planned:
    """A question of the plan."""

    question: RequestTemplate
    costly: int = 0
    """Answers to it that were slow or long, since the last that was not."""


@dataclass(eq=False)
class _Round:
    """One stop."""

    stop: Stop
    questions: list[_Planned]
    """What has not been asked."""
    after: int
    """Number of the editor's last request before it that may change something."""
    untold: list[Request] = field(default_factory=list)
    """Requests that the client has not been told of."""
    answers: list[Response] = field(default_factory=list)
    """Answers that it has not been told."""
    size: int = 0
    """Of those answers, in bytes."""


@dataclass(eq=False)
class _Asked:
    """A request under way."""

    round: _Round
    planned: _Planned
    request: Request
    at: float
    """When it was made."""
