"""One watch: what it evaluates, what that costs, and its hits.

A hit is handled in the thread of the job that reaches the line; a helper thread passes it on. Between the two there is
only a queue of C code: a hit can occur in a signal handler or a destructor, where the thread may hold any lock, so
nothing here takes one in a thread of the job. Numbers that several threads increase are `itertools.count`, because
another thread cannot run in the middle of one call of C code.

What a watch costs: a line that is reached often is evaluated for at most `SHARE` of a thread's time, beyond a few
evaluations per second, which are always made. All others are counted as skipped.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from _queue import Empty, SimpleQueue  # C code: reentrant, and gevent replaces `queue`
from _thread import get_ident
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from relay_agent.job.gevent_originals import threading, time
from relay_agent.stacks.in_process import capture_callers
from relay_agent.stacks.local_names import local_names
from relay_agent.trigger.divergence import MAX_SECONDS, compare
from relay_agent.trigger.expression import Expression, failure
from relay_agent.trigger.places import Hook, check_locals
from relay_agent.trigger.steps import StepHook
from relay_agent.values.presentation import short_repr
from relay_core.agent_api.evaluation import Selection
from relay_core.agent_api.stacks import Frame
from relay_core.agent_api.watch import MAX_FRAMES, MAX_HITS, Hit, Watch, Watched
from relay_core.errors import ConfigurationError

FREE_RATE = 10
"""Evaluations per second that are always made, and the maximum number of them without delay after a pause."""
SHARE = 0.02
"""Maximum part of a thread's time for all others."""
MAX_CAPTURED = 16 * 1024
"""Maximum number of characters of the variables that are captured at a hit: those of `MAX_HITS` fit into an answer."""
MAX_REMARKS = 3
"""Maximum number of sentences about the steps or the condition."""
TOO_LONG = 1.0
"""Seconds after which an evaluation, other than one of checksums, ends its watch; it cannot be interrupted."""
GATHER_TIME = 0.01
"""Seconds for which more hits are collected after the first one."""
MAX_THINNING = 1024
"""Maximum factor by which fewer common steps are due than the user has asked for."""
COUNTING_TIME = 7e-7
"""Seconds that it takes to count a hit, approximately; to measure it would take as long again."""


_reporting: set[int] = set()
"""The threads that are reporting: an expression may reach a line that is watched."""


class Budget:
    """How often a watch may evaluate."""

    def __init__(self, now: float) -> None:
        self._free = float(FREE_RATE)
        """How many evaluations may be made without delay, at the time of `_since`."""
        self._since = now
        self._next = now
        """When the next evaluation fits into `SHARE`."""

    def next_after(self, began: float, ended: float) -> float:
        """Return when the next evaluation may begin, after one that began and ended at these times."""
        self._free = min(FREE_RATE, self._free + (began - self._since) * FREE_RATE)
        self._since = began
        if began < self._next:
            self._free -= 1
        self._next = ended + (ended - began) / SHARE
        return min(self._next, began + max(0.0, 1 - self._free) / FREE_RATE)


class InstalledWatch:
    """A watch in this process; `reached` and `report` are called in the job's threads.

    Args:
        question: The watch.
        hold: Waits for a debugger, and stops in the frame.
    """

    def __init__(self, question: Watch, hold: Callable[[FrameType], object]) -> None:
        self.question = question
        self._selection = question.selection
        """That of the last question."""
        self._hold = hold
        self.place = self.note = self.error = self.ended = ""
        """As in `Watched`, but `note` is about the place."""
        self._remarks: list[str] = []
        self.hooks: Sequence[Hook | StepHook] = ()
        self.asking = threading.Lock()
        """Held while a question is being answered."""
        self.began = self.asked = time.monotonic()
        """When the watch was installed, and when the last question arrived."""
        self.search_at = 0.0
        """When the place may be searched for again."""
        self._turn = 0
        """The number of questions; all but the last one stop waiting."""
        self._expression = self._condition = None
        try:
            self._expression, self._condition = map(Expression.of, (question.expression, question.condition))
        except ConfigurationError as error:
            self.error = error.sentence
        self._clock, self._time = time.perf_counter, time.time  # to look them up takes microseconds each time
        self._budget = Budget(self._clock())
        self._next = 0.0
        """When the next evaluation may begin, by `_clock`."""
        self._stride = 1 if self._condition or question.selection else question.every
        """A condition has to be evaluated each time, and common steps have numbers of their own."""
        self._thinning = 1
        """By how much fewer common steps are due, because the checksums take too long: a power of 2, so that the steps
        of a rank with a higher one are due in all ranks."""
        self._counter, self._evaluated, self._matched, self._reported, self._missed = map(itertools.count, [1] * 5)
        self.reached = self._make_reached()
        """Counts that a thread is about to execute the line; returns the number if `report` is to be called, or 0."""
        self._skipped_before_end = 0
        self._spent = 0.0
        self._raw: SimpleQueue[tuple[int, Hit] | None] = SimpleQueue()
        """The hits that the job's threads have left, still without numbers, each with the ident of its thread; None if
        something else has changed."""
        self._kept: list[Hit] = []
        """The hits that are not acknowledged."""
        self._last = int(time.time() * 1000)  # see `Hit.number`
        self._answered = Watched()
        """The state in the last answer."""

    # In the job's threads:

    @property
    def every(self) -> int:
        """Of which number those of common steps that are due are multiples; the client searches in all steps."""
        return (self.question.every if self._selection == Selection() else 1) * self._thinning

    def _make_reached(self) -> Callable[[], int]:
        """Return a function that counts; local variables are the fastest."""
        count, stride, clock = self._counter.__next__, self._stride, self._clock

        def reached() -> int:
            number = count()
            return 0 if (stride > 1 and (number - 1) % stride) or clock() < self._next else number

        def reached_common() -> int:
            if (number := reached()) == 0 and not self.ended:
                self._thinning = min(2 * self._thinning, MAX_THINNING)
            return number

        return reached_common if self.question.selection else reached

    def report(self, frame: FrameType, reached: int, find: Callable[[], str] | None = None) -> None:
        """Evaluate, leave a hit, and hold the thread if that is asked for; raises only what a signal handler raises.

        Args:
            frame: Where the expression is evaluated.
            reached: What `reached` has returned.
            find: Returns what there is to report besides the expression; "" for nothing, which is not reported.
        """
        thread = get_ident()
        if thread in _reporting:
            return
        _reporting.add(thread)
        try:
            began, may_hold = self._clock(), False
            next(self._evaluated)
            try:
                may_hold = self._evaluate(frame, reached, find)
            finally:
                now = self._clock()
                self._spent += now - began
                self._next = self._budget.next_after(began, now) if not self.ended else math.inf
                if now - began > (TOO_LONG if self._selection is None else MAX_SECONDS):
                    self.end(f"because one evaluation took {now - began:.1f} s")
            if may_hold and self.question.is_holding:
                self._hold(frame)
        finally:
            _reporting.discard(thread)

    def _evaluate(self, frame: FrameType, reached: int, find: Callable[[], str] | None) -> bool:
        """Return whether there was a hit without an exception, at which the thread may be held."""
        found = text = error = ""
        compared, selection = None, self._selection
        try:
            has_names = self._condition is not None or self._expression is not None
            if has_names and find is not None and not self._may_read(frame):
                return False
            names = local_names(frame) if has_names else {}
            if self._condition is not None and not self._is_due(self._condition, frame, names):
                return False
            if find is not None and not (found := self._found(find)):
                return False
            if self._expression is not None:
                value = self._expression.value(frame, names)
                text, compared = ("", compare(value, selection)) if selection else (short_repr(value), None)
        except BaseException as raised:  # noqa: BLE001 - the expression may raise anything, including SystemExit
            error = failure(raised)
        if found and not selection:
            text, error = f"{found}. {self.question.expression}: {text or error}" if text or error else found, ""
        number, limit = next(self._reported), self.question.hits
        if limit and number > limit:  # another thread has reported the last hit
            return False
        if self._raw.qsize() + len(self._kept) < MAX_HITS:
            frames = self._captured(frame, error)
            hit = Hit(0, reached, self._time(), text or found, error, frames=frames, compared=compared)
            self._raw.put((get_ident(), hit))
        else:
            next(self._missed)
        if number == limit:
            self.end(f"after {limit} {'hit' if limit == 1 else 'hits'}")
        return not error

    def _captured(self, frame: FrameType, error: str) -> tuple[Frame, ...]:
        """Return what is captured; this executes no code of the job, so what it raises comes from a signal handler."""
        if not self.question.is_capturing or error:
            return ()
        try:
            return capture_callers(frame, MAX_FRAMES, most=MAX_CAPTURED)
        except (RecursionError, MemoryError):  # the job is just below the limit
            return ()

    def _may_read(self, frame: FrameType) -> bool:
        """Return whether the local names of an optimizer's caller can be read; otherwise, the watch ends."""
        try:
            check_locals([frame.f_code])
        except ConfigurationError as error:
            hint = "; watch the gradients without an expression and a condition" if self.question.gradients else ""
            self.end(f"because {error.sentence}{hint}")
        return not self.ended

    def _found(self, find: Callable[[], str]) -> str:
        """Return what `find` returns; if it fails, the watch ends."""
        try:
            return find()
        except BaseException as raised:  # noqa: BLE001 - of an object that the job has given to its optimizer
            reason = failure(raised)
        self.end(f"because the step cannot be checked: {reason}")
        return ""

    def _is_due(self, condition: Expression, frame: FrameType, names: dict[str, Any]) -> bool:
        """Return whether the condition is true, and this is the n-th time."""
        try:
            if not condition.value(frame, names):
                return False
        except BaseException as raised:  # noqa: BLE001 - as above
            self.remark(f"the condition raises {failure(raised)}")
            return False
        return (next(self._matched) - 1) % self.question.every == 0

    def end(self, reason: str) -> None:
        """Report nothing more."""
        if not self.ended:
            self._skipped_before_end = self._skipped()
            self.ended, self._next = reason, math.inf
            self.wake()

    # In any thread:

    def remark(self, sentence: str) -> None:
        """Show the user a sentence about the steps or the condition, once."""
        if sentence not in self._remarks and len(self._remarks) < MAX_REMARKS:
            self._remarks.append(sentence)
            self.wake()

    def wake(self) -> None:
        """End the wait of a question, if there is one, because the state has changed."""
        self._raw.put(None)

    # In helper threads:

    def begin_turn(self, selection: Selection | None) -> int:
        """Note the arrival of a question and end the wait of an earlier one; return the question's number."""
        self.asked, self._selection = time.monotonic(), selection
        self._turn += 1
        self.wake()
        return self._turn

    def acknowledge(self, number: int) -> None:
        """Forget the hits that the client has received."""
        self._kept = [hit for hit in self._kept if hit.number > number or number > self._last]

    def wait(self, turn: int, seconds: float) -> None:
        """Wait until there are hits, something else has changed, or a newer question has arrived."""
        ends = time.monotonic() + seconds
        with contextlib.suppress(Empty):
            while not self._kept and self._turn == turn and self._state() == self._answered:
                self._keep(self._raw.get(timeout=max(0.0, ends - time.monotonic())))
            if self._kept and not self.ended:
                time.sleep(GATHER_TIME)

    def answer(self) -> Watched:
        """Return the state of the watch, with all hits that were not acknowledged."""
        with contextlib.suppress(Empty):
            while True:
                self._keep(self._raw.get_nowait())
        self._answered = self._state()
        reached = _count(self._counter)
        return replace(
            self._answered,
            hits=tuple(self._kept),
            reached=reached,
            missed=_count(self._missed),
            skipped=self._skipped(),
            spent=self._spent + reached * COUNTING_TIME,
        )

    def _state(self) -> Watched:
        """Return the texts of an answer."""
        note = "; ".join(self._remarks)
        if not note and (self._condition is not None or self.question.is_of_steps) and self._skipped():
            line = "the line is reached too often to evaluate the condition each time"
            what = "optimizers take steps too often to check each one" if self.question.is_of_steps else line
            note = f"{what}: hits may be missing"
        note = "; ".join(filter(None, (self.note, note)))
        return Watched(place=self.place, note=note, error=self.error, ended=self.ended)

    def _skipped(self) -> int:
        """Return how many times the line was due but not evaluated; counting this each time would take longer."""
        if self.ended:
            return self._skipped_before_end
        return max(0, -(-_count(self._counter) // self._stride) - _count(self._evaluated))

    def _keep(self, raw: tuple[int, Hit] | None) -> None:
        """Number a hit; here, because the order is known only once the hits are in the queue."""
        if raw is None:
            return
        self._last += 1
        ident, hit = raw
        is_main = ident == threading.main_thread().ident
        names = {} if is_main else {thread.ident: thread.name for thread in threading.enumerate()}
        name = "" if is_main else names.get(ident, f"thread {ident:#x}")
        self._kept.append(replace(hit, number=self._last, thread=name))


def _count(counter: itertools.count[int]) -> int:
    """Return how often a counter that began with 1 was increased; only its text shows that without increasing it."""
    return int(repr(counter)[len("count(") : -1]) - 1
