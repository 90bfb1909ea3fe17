"""The client's part of `relay_core.dap.prefetch`: it learns what its editor asks, and answers what the agent has asked.

Only questions are answered here that the editor asked by itself at a stop before, each once, and only until the
editor says anything else than a question or the debugger says that something has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.dap.framing import encode
from relay_core.dap.messages import Arguments, Request, Response
from relay_core.dap.prefetch import (
    MAX_NEWS,
    MAX_PLAN,
    NEWS,
    PLAN,
    QUESTIONS,
    RESUMING,
    Question,
    Stop,
    arguments_of,
    changes_nothing,
    is_message,
    parse,
)
from relay_core.dap.splitter import MAX_WHOLE, Cutter
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer

__all__ = ["PrefetchCacheLayer"]

PROMPT = 1.0
"""Seconds between what an editor is told and its next question if it asks by itself; people are slower. VS Code lets
0.4 s pass before it asks for variables and for the rest of the call stack."""
KEPT = 2.0
"""Seconds for which an answer is used: objects can change behind the back of a stopped process."""
CHANGES = (b'"continued"', b'"exited"', b'"invalidated"', b'"stopped"', b'"terminated"', b'"thread"')
"""Events after which answers are not true any more."""


class PrefetchCacheLayer(Layer):
    """One editor's connection: the editor is the local program, the agent is the peer."""

    def __init__(self) -> None:
        self._from_editor = Cutter()
        self._from_agent = Cutter(MAX_NEWS)
        self._plan: list[Question] = []
        """What the agent knows."""
        self._learned: list[Question] = []
        """What the editor has asked at this stop."""
        self._stop: Stop | None = None
        self._stopped_at = 0.0
        self._quiet_since = 0.0
        """When the editor was told the last thing that it may ask about."""
        self._asked: dict[int, Request] = {}
        """Questions of the editor that have gone on, by number."""
        self._ahead: dict[int, _Ahead] = {}
        """Questions of the agent, by number."""
        self._current = False
        """Whether the debugger has said nothing since the last stop that changes the answers."""
        self._after = 0
        """Number of the editor's last request that may change something."""

    def __repr__(self) -> str:
        return f"<PrefetchCacheLayer plan={len(self._plan)} ahead={len(self._ahead)}>"

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of the editor; return those for the agent, and answers."""
        onward: list[bytes] = []
        back: list[bytes] = []
        for piece in self._from_editor.feed(data):
            request = parse(piece.body, "request")
            answer = self._ask(request, now) if request and request["command"] in QUESTIONS else None
            if answer is not None:
                back.append(answer)
                continue
            if request is None or not changes_nothing(request):
                self._after = request["seq"] if request else 0
                self._forget_answers()
            if request and request["command"] in RESUMING:
                onward.append(self._tell_plan(now))
            onward.append(piece.raw)
        if self._from_editor.is_foreign and self._from_agent.is_untouched:
            self.is_finished = True  # this is not an editor's connection
        outputs: list[Output] = [ToPeer(b"".join(onward))] if onward else []
        answers = b"".join(back)  # nothing is said to a question whose answer is under way
        return [*outputs, ToLocal(answers)] if answers else outputs

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of the agent; return those for the editor."""
        told = []
        for piece in self._from_agent.feed(data):
            news = _News.parse(piece.body) if NEWS.encode() in piece.body else None
            if news is None:
                if len(piece.body) <= MAX_WHOLE:  # longer ones would take long to parse
                    self._watch(piece.body, now)
                told.append(piece.raw)
            else:
                told += self._learn(news, now)
        return [ToLocal(b"".join(told))] if told else []

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, behind what the agent has begun to say."""
        rest = self._from_agent.end()
        return [ToLocal(rest), EndLocal()] if rest else [EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass on what the agent has begun to say, and then the loss."""
        rest = self._from_agent.end()
        outputs = super().receive_peer_lost(now)
        return [ToLocal(rest), *outputs] if rest else outputs

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, behind what the editor has begun to say."""
        rest = self._from_editor.end()
        return [ToPeer(rest), EndPeer()] if rest else [EndPeer()]

    # From the editor:

    def _ask(self, request: Request, now: float) -> bytes | None:
        """Return what the editor is told of its question now, or None if the debugger is to be asked."""
        command, arguments = request["command"], arguments_of(request)
        question = self._stop.recognise(command, arguments) if self._stop else None
        by_itself = now - self._quiet_since <= PROMPT
        if question and by_itself and question not in self._learned and len(self._learned) < MAX_PLAN:
            self._learned.append(question)
        for number, ahead in self._ahead.items():
            if ahead.is_free(now) and ahead.asks(command, arguments) and self._from_agent.at_boundary:
                if ahead.response is not None:
                    del self._ahead[number]
                    return self._answer(request, ahead.response, now)
                ahead.editors = request
                return b""
        if question:
            self._asked[request["seq"]] = request
        return None

    def _tell_plan(self, now: float) -> bytes:
        """Return what the agent has to know before the next stop.

        Somebody who steps on before the editor has asked everything looks at a later stop.
        """
        wanted = list(self._learned)
        if now - self._stopped_at < PROMPT:
            wanted += [question for question in self._plan if question not in wanted]
        plan = sorted(wanted[:MAX_PLAN], key=lambda question: question.command == "threads")  # no other waits for it
        self._asked.clear()
        if plan == self._plan:
            return b""
        self._plan = plan
        questions = [question.as_json() for question in plan]
        return encode({"seq": 0, "type": "request", "command": PLAN, "arguments": {"questions": questions}})

    # From the agent:

    def _watch(self, body: bytes, now: float) -> None:
        """Note what a message means for the questions to come."""
        if self._asked and b'"response"' in body and (response := parse(body, "response")):
            request = self._asked.pop(response["request_seq"], None)
            if request is not None:
                self._hear(request, response, now)
        elif any(change in body for change in CHANGES) and (event := parse(body, "event")):
            if f'"{event["event"]}"'.encode() in CHANGES:
                self._forget_answers()
                self._current = False
            match event:
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    self._stop, self._current = Stop(thread), True
                    self._learned, self._stopped_at, self._quiet_since = [], now, now

    def _learn(self, news: _News, now: float) -> list[bytes]:
        """Return what the editor is told because of news."""
        if self._current and news.after == self._after != 0:
            self._ahead |= {request["seq"]: _Ahead(request) for request in news.asked[:MAX_PLAN]}
        told = []
        for response in news.answered:
            ahead = self._ahead.pop(response["request_seq"], None)
            if ahead is None:
                continue  # it has been forgotten
            if ahead.editors is not None:
                told.append(self._answer(ahead.editors, response, now))
            elif response.get("success") is True:
                ahead.response, ahead.at = response, now
                self._ahead[response["request_seq"]] = ahead
        return told

    def _answer(self, request: Request, response: Response, now: float) -> bytes:
        """Return the debugger's answer to a question of the agent as one to the same question of the editor."""
        self._hear(request, response, now)
        return encode({**response, "request_seq": request["seq"]})

    def _hear(self, request: Request, response: Response, now: float) -> None:
        """The editor hears an answer."""
        self._quiet_since = now
        if self._stop:
            self._stop.learn(request["command"], arguments_of(request), response.get("body"))

    def _forget_answers(self) -> None:
        """Something has changed, or will have changed before the editor asks again; what it has asked is answered."""
        self._ahead = {number: ahead for number, ahead in self._ahead.items() if ahead.editors is not None}


@dataclass(eq=False)
class _Ahead:
    """A question that the agent has asked."""

    request: Request
    """The agent's."""
    editors: Request | None = None
    """The editor's request that asks the same."""
    response: Response | None = None
    at: float = 0.0
    """When it came."""

    def is_free(self, now: float) -> bool:
        """Whether it can answer a request."""
        return self.editors is None and (self.response is None or now - self.at <= KEPT)

    def asks(self, command: str, arguments: Arguments) -> bool:
        """Whether it asks what a request asks."""
        return (self.request["command"], arguments_of(self.request)) == (command, arguments)


@dataclass(frozen=True)
class _News:
    """What the agent has to tell."""

    after: int
    asked: list[Request]
    answered: list[Response]

    @classmethod
    def parse(cls, body: bytes) -> _News | None:
        """Return the news that a message contains, or None if it is something else."""
        match parse(body, "event"):
            case {"event": event, "body": {"after": int(after), "asked": list(asked), "answered": list(answered)}}:
                if event == NEWS:
                    requests = [message for message in asked if is_message(message, "request")]
                    return cls(after, requests, [message for message in answered if is_message(message, "response")])
        return None
