"""The client's part of `relay_core.dap.ahead`: it learns what its editor asks, and answers what it knows.

Only questions are answered here that the editor asked by itself at the stop before, each once, and only until the
editor says anything else than a question or the debugger says that something has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from relay_core.dap.ahead import ANSWER, MAX_NEWS, MAX_PLAN, PLAN, QUESTIONS, Question, Stop, arguments_of, parse
from relay_core.dap.cutting import Cutter
from relay_core.dap.framing import Message, encode
from relay_core.net.interposed_stream import Interposer

__all__ = ["AnswerAhead"]

HOLD_LIMIT = 0.1
"""Seconds that `stopped` is kept back. The answers take 5 ms, but for variables whose text takes long to make."""
LATE_LIMIT = 3
"""Times that a question may be late before it is not asked ahead any more."""
AT_ONCE = 0.2
"""Seconds between what an editor is told and its next question if nothing but the answer to it was missing."""
PROMPT = 1.0
"""The same if it asks by itself; people are slower. VS Code lets 0.4 s pass before it asks for variables and for the
rest of the call stack: somebody who steps on will not want them."""
KEPT = 2.0
"""Seconds for which an answer is used: objects can change behind the back of a stopped process."""
RESUMING = frozenset({"continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "goto"})
"""Requests that lead to the next stop."""
CHANGES = (b'"continued"', b'"exited"', b'"invalidated"', b'"stopped"', b'"terminated"', b'"thread"')
"""Events after which answers are not true any more."""
WATCHING = ("hover", "watch")
"""Contexts of `evaluate` in which an editor evaluates by itself, next to asking for variables, in any order."""


class AnswerAhead(Interposer):
    """One editor's connection."""

    def __init__(self) -> None:
        self._from_editor = Cutter()
        self._from_agent = Cutter(MAX_NEWS)
        self._plan: list[Question] = []
        self._learned: list[Question] = []
        self._late: list[Question] = []
        self._stop: Stop | None = None
        self._quiet_since = 0.0
        """When the editor was told the last thing that it may ask about."""
        self._asked: dict[int, Message] = {}
        """Questions of the editor that the debugger answers, by number."""
        self._answers: list[_Answer] = []
        self._current = False
        """Whether answers that come now are about the present state."""
        self._held: list[bytes] | None = None
        """What the editor is not told yet."""

    def __repr__(self) -> str:
        return f"<AnswerAhead plan={len(self._plan)} answers={len(self._answers)}>"

    def written(self, data: bytes, now: float) -> tuple[bytes, bytes]:
        """Take bytes of the editor; return those for the agent, and answers."""
        onward: list[bytes] = []
        back: list[bytes] = []
        for piece in self._from_editor.feed(data):
            request = parse(piece.body, "request") or {}
            if request.get("command") in QUESTIONS and (answer := self._answer(request, now)):
                back.append(answer)
                continue
            if not _changes_nothing(request):
                back.append(self._release(now))
                self._forget_answers()
            if request.get("command") in RESUMING:
                onward.append(self._tell_plan())
            onward.append(piece.raw)
        return b"".join(onward), b"".join(back)

    def arrived(self, data: bytes, now: float) -> bytes:
        """Take bytes of the agent; return those for the editor."""
        told = []
        for piece in self._from_agent.feed(data):
            if ANSWER.encode() in piece.body and (news := _parse_news(piece.body)) is not None:
                answers, left = news
                self._answers += [replace(answer, at=now) for answer in answers if self._current]
                told.append(b"" if left else self._release(now))
                continue
            self._watch(piece.body, now)
            (told if self._held is None else self._held).append(piece.raw)
        return b"".join(told)

    def expired(self, now: float) -> bytes:
        """Return what was kept back for too long."""
        answered = {answer.command for answer in self._answers}
        self._late += [question for question in self._plan if question.at_once and question.command not in answered]
        return self._release(now)

    def arrived_end(self) -> bytes:
        """Return what the editor has not been told."""
        return self._release(self._quiet_since) + self._from_agent.end()

    def written_end(self) -> bytes:
        """Return what the editor has begun to say."""
        return self._from_editor.end()

    # From the editor:

    def _answer(self, request: Message, now: float) -> bytes | None:
        """Return the answer to a question, or None if the debugger is to be asked."""
        command, arguments = request["command"], arguments_of(request)
        question = self._recognise(command, arguments)
        pause = now - self._quiet_since
        if question and pause <= PROMPT and question not in self._learned[:MAX_PLAN]:
            at_once = pause <= AT_ONCE and all(earlier.at_once for earlier in self._learned)
            self._learned.append(replace(question, at_once=at_once))
        known = [a for a in self._answers if (a.command, a.arguments) == (command, arguments) and now - a.at <= KEPT]
        if not known or self._held is not None or not self._from_agent.at_boundary:
            if question:
                self._asked[request["seq"]] = request
            return None
        self._answers.remove(known[0])
        self._hear(command, arguments, known[0].response, now)
        return encode({**known[0].response, "request_seq": request["seq"]})

    def _tell_plan(self) -> bytes:
        """Return what the agent has to know before the next stop."""
        wanted = [question for question in self._learned[:MAX_PLAN] if self._late.count(question) < LATE_LIMIT]
        plan = sorted(wanted, key=lambda question: (not question.at_once, question.command == "threads"))
        questions = [question.as_json() for question in plan]
        self._asked.clear()
        if questions == [question.as_json() for question in self._plan]:
            return b""
        self._plan = plan
        return encode({"seq": 0, "type": "request", "command": PLAN, "arguments": {"questions": questions}})

    def _recognise(self, command: str, arguments: dict[str, Any]) -> Question | None:
        return self._stop.recognise(command, arguments) if self._stop else None

    # From the agent:

    def _watch(self, body: bytes, now: float) -> None:
        """Note what a message means for the questions to come."""
        if self._asked and b'"response"' in body and (response := parse(body, "response")):
            request = self._asked.pop(response["request_seq"], None)
            if request is not None:
                self._hear(request["command"], arguments_of(request), response, now)
        elif any(change in body for change in CHANGES) and (event := parse(body, "event")):
            if f'"{event["event"]}"'.encode() in CHANGES:
                self._forget_answers()
            match event:
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    self._stop, self._current = Stop(thread), True
                    self._learned, self._quiet_since = [], now
                    if any(question.at_once for question in self._plan) and self._held is None:
                        self._held, self.deadline = [], now + HOLD_LIMIT

    def _hear(self, command: str, arguments: dict[str, Any], response: Message, now: float) -> None:
        """The editor hears an answer."""
        self._quiet_since = now
        if self._stop:
            self._stop.learn(command, arguments, response.get("body"))

    def _forget_answers(self) -> None:
        """Something has changed, or will have changed before the editor asks again."""
        self._answers.clear()
        self._current = False

    def _release(self, now: float) -> bytes:
        """Return what was kept back."""
        if self._held is None:
            return b""
        held, self._held, self.deadline, self._quiet_since = self._held, None, None, now
        return b"".join(held)


@dataclass(frozen=True)
class _Answer:
    """What the agent knows already."""

    command: str
    arguments: dict[str, Any]
    response: Message
    at: float = 0.0
    """When it came."""


def _changes_nothing(request: Message) -> bool:
    command, context = request.get("command"), arguments_of(request).get("context")
    return command in QUESTIONS or (command == "evaluate" and context in WATCHING)


def _parse_news(body: bytes) -> tuple[list[_Answer], int] | None:
    """Return answers, and how many are still to come; None if this is something else."""
    match parse(body, "event"):
        case {"event": event, "body": {"answers": list(answers), "left": int(left)}} if event == ANSWER:
            return [answer for found in answers if (answer := _parse_answer(found))], left
    return None


def _parse_answer(found: object) -> _Answer | None:
    match found:
        case {"request": {"command": str(command), "arguments": dict(arguments)}, "response": dict(response)}:
            return _Answer(command, arguments, response)
    return None
