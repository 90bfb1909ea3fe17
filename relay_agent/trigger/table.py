"""The watches of this process: they are installed by questions, and removed when nobody asks any more."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple, TypeVar

from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.stderr import describe_exception
from relay_agent.job.torch_compiler import has_compiled_code
from relay_agent.trigger.divergence import CommonSteps
from relay_agent.trigger.gradients import not_finite
from relay_agent.trigger.places import Hook, check_locals, find_codes, find_places
from relay_agent.trigger.steps import LATER, PLACE, StepHook, StepHooks, is_loaded
from relay_agent.trigger.watch import InstalledWatch
from relay_core.agent_api.watch import LEASE, WAIT, Watch, Watched
from relay_core.errors import ConfigurationError

if sys.version_info >= (3, 12):
    from relay_agent.trigger.monitoring import Engine
else:
    from relay_agent.trigger.replaced_code import Engine

CHECK_INTERVAL = 1.0
"""Seconds between two searches for watches that have ended."""
SEARCH_INTERVAL = 5.0
"""Minimum time in seconds between two searches for the place of a watch, which take 0.3 s with a million objects."""
MAX_SEARCH_INTERVAL = 30.0
"""The same for a file that has not been loaded for a long time: it may never be."""
SEND_TIME = 0.5
"""Seconds for which the end of the process waits until the last hits have been sent; usually a few milliseconds."""
MAX_WATCHES = 16
"""Maximum number of watches at the same time; each one costs time at its lines."""
MAX_PLACES = 5
"""Maximum number of places of a line that are named."""
PAUSED = "paused while code is being replaced"
"""The note during a push, which must see the job's own code."""
IN_STEPS = "optimizer steps that torch.compile has compiled are not checked"
IN_GRAPHS = "lines inside of a graph that torch.compile has compiled are not seen"
"""The notes if torch.compile has compiled anything."""


_Hook = TypeVar("_Hook", Hook, StepHook)


class Job(NamedTuple):
    """What watches need of the process in which they are."""

    log: Callable[[str], None]
    """Writes a line to the job's log."""
    hold: Callable[[FrameType], object]
    """Waits for a debugger, in the thread of the frame, and stops in the frame."""


class Watches:
    """The watches of this process, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while watches or hooks change, by helper threads only."""
        self._watches: dict[str, InstalledWatch] = {}
        self._engine = Engine()
        self._steps = StepHooks()
        self._is_checking = False
        self._paused_by, self._paused_until = "", 0.0
        """The push that has paused the watches, and until when."""
        self._find_others: Callable[[], Sequence[Hook]] = tuple
        """Returns the hooks of data breakpoints."""
        self._others: Sequence[Hook] = ()

    def answer(self, question: Watch, port: int, job: Job, respond: Callable[[Watched], None]) -> None:
        """Answer a question, after at most `question.wait` seconds.

        Args:
            question: The question.
            port: The logical port of this process.
            job: The process.
            respond: Called with the answer.
        """
        with self._lock:
            watch = self._watches.get(question.id)
            is_new = watch is None
            if watch is None and question.is_last:
                respond(Watched())
                return
            if watch is None and sum(not each.ended for each in self._watches.values()) >= MAX_WATCHES:
                respond(Watched(error=f"the process has {MAX_WATCHES} watches already; end one of them"))
                return
            if watch is None:
                self._start_checking()
                watch = self._watches[question.id] = InstalledWatch(question, job.hold)
            turn = watch.begin_turn(question.selection)
            self._place(watch)
        if is_new and not watch.error:
            line = PLACE if question.is_of_steps else f"{question.file}:{question.line}"
            what = "the gradients" if question.gradients else line
            job.log(f"{question.user} is watching {what}")
        received = question.after.get(str(port))
        with watch.asking:
            watch.acknowledge(received or 0)
            if received is not None and not question.is_last:
                watch.wait(turn, min(question.wait, WAIT))
            if question.is_last or watch.ended:
                with self._lock:
                    self._end(watch, "by request")
            respond(watch.answer())

    def end_process(self) -> None:
        """Remove all watches, because the process exits, and wait until their last hits have been sent."""
        ends = time.monotonic() + SEND_TIME
        is_locked = self._lock.acquire(timeout=SEND_TIME)  # a helper thread may be searching
        ending, self._watches = self._watches, {}
        self._disarm()
        if is_locked:
            self._lock.release()
        for watch in ending.values():
            watch.end("because the process exited")
            if watch.asking.acquire(timeout=max(0.0, ends - time.monotonic())):
                watch.asking.release()

    def set_others(self, find: Callable[[], Sequence[Hook]]) -> str:
        """Replace the hooks of data breakpoints, and return what the user should know, in one sentence.

        Args:
            find: Returns the hooks; also called after each push, for the new code.

        Raises:
            ConfigurationError: other tools have the tool ids of Python's monitoring.
        """
        with self._lock:
            self._find_others = find
            self._others = find() if time.monotonic() >= self._paused_until else ()
            return self._engine.set_hooks(self._hooks(Hook))

    def pause(self, push: str, seconds: float) -> None:
        """Remove all hooks while a push replaces code: until `resume`, or for these seconds."""
        with self._lock:
            self._paused_by, self._paused_until = push, time.monotonic() + seconds
            for watch in self._watches.values():
                watch.hooks, watch.note, watch.search_at = (), PAUSED, 0.0
                watch.wake()
            self._others = ()
            self._install_hooks()
            if self._find_others is not tuple:  # otherwise, the watches have started it
                self._start_checking()

    def resume(self, push: str) -> None:
        """Search for all places again, in the new code, unless another push has begun."""
        with self._lock:
            if push != self._paused_by:
                return
            self._end_pause()
            for watch in self._watches.values():
                self._place(watch)
                watch.wake()

    def _end_pause(self) -> None:
        self._paused_until = 0.0
        with contextlib.suppress(Exception):  # an audit hook of the job
            self._others = self._find_others()
        self._install_hooks()

    def _start_checking(self) -> None:
        if not self._is_checking:
            start_helper(self._check, "relay-agent watch")
            self._is_checking = True

    def forget(self) -> None:
        """Remove all watches in a forked child, which has no helper threads."""
        self._lock, self._watches, self._is_checking = threading.Lock(), {}, False
        self._others = ()
        self._disarm()

    def _disarm(self) -> None:
        self._engine.disarm()
        self._steps.disarm()

    def _place(self, watch: InstalledWatch) -> None:
        """Search for the place of a watch that has none."""
        now = time.monotonic()
        if watch.hooks or watch.error or watch.ended or now < max(watch.search_at, self._paused_until):
            return
        watch.search_at = now + min(MAX_SEARCH_INTERVAL, max(SEARCH_INTERVAL, now - watch.began))
        try:
            (self._place_at_steps if watch.question.is_of_steps else self._place_line)(watch)
        except Exception as error:  # noqa: BLE001 - of the job: an audit hook that refuses, or code that a tool has made
            is_known, what = isinstance(error, ConfigurationError), PLACE if watch.question.is_of_steps else "the line"
            watch.error = str(error) if is_known else f"{what} cannot be watched: {describe_exception(error)}"
            watch.hooks = ()
            self._install_hooks()

    def _place_at_steps(self, watch: InstalledWatch) -> None:
        watch.search_at = 0.0  # to look for torch takes no time
        if not is_loaded():
            watch.note = ""
            return
        common = CommonSteps(lambda: watch.every, watch.remark)
        is_due, find = (lambda _: True, not_finite) if watch.question.gradients else (common.is_due, common.describe)
        watch.place, watch.hooks = PLACE, [StepHook(watch.reached, watch.report, is_due, find)]
        is_reached = self._steps.set_hooks(self._hooks(StepHook))
        watch.note = (IN_STEPS if has_compiled_code() else "") if is_reached else LATER
        watch.hooks = watch.hooks if is_reached else ()

    def _place_line(self, watch: InstalledWatch) -> None:
        file, line = watch.question.file, watch.question.line
        codes = find_codes(file)
        places = find_places(codes, line)
        check_locals(place.code for place in places)
        watch.hooks = [Hook(place, watch.reached, watch.report) for place in places]
        notes = [self._engine.set_hooks(self._hooks(Hook))] if places else []
        if places:
            names = [*dict.fromkeys(map(str, places))]  # the versions of a function have equal names
            more = f" and {len(names) - MAX_PLACES} more places" if len(names) > MAX_PLACES else ""
            watch.place = f"{', '.join(names[:MAX_PLACES])}{more}"
            code, found = places[0][:2]
            outside = "" if code.co_flags & inspect.CO_OPTIMIZED else ", which is in no function"
            notes += [f"line {line} has no code, so line {found} is watched{outside}"] * (found != line)
            notes += [IN_GRAPHS] * has_compiled_code()
        elif codes:
            notes += [f"{PurePath(file).name} has no code at line {line} or after it"]
        watch.note = "; ".join(filter(None, notes))

    def _hooks(self, kind: type[_Hook]) -> list[_Hook]:
        hooks = [*self._others, *(hook for watch in self._watches.values() for hook in watch.hooks)]
        return [hook for hook in hooks if isinstance(hook, kind)]

    def _install_hooks(self) -> None:
        """Replace the installed hooks by those that there are now; those that the job's audit hooks keep do nothing."""
        with contextlib.suppress(Exception):
            self._engine.set_hooks(self._hooks(Hook))
            self._steps.set_hooks(self._hooks(StepHook))

    def _end(self, watch: InstalledWatch, reason: str) -> None:
        """Remove the hooks of a watch; its last answer remains until nobody asks for it."""
        watch.end(reason)
        if watch.hooks:
            watch.hooks = ()
            self._install_hooks()

    def _check(self) -> None:
        """End the watches that are over, and place those that have no place, until there are none."""
        while True:
            time.sleep(CHECK_INTERVAL)
            with self._lock:
                now = time.monotonic()
                if 0 < self._paused_until <= now:  # nobody has ended the push
                    self._end_pause()
                for id, watch in list(self._watches.items()):  # noqa: A001 - its name in the question
                    if now - watch.asked > LEASE:
                        self._end(watch, "because nobody asks")
                        self._watches.pop(id, None)  # unless the process exits
                    elif watch.ended or now - watch.began > watch.question.lasts:
                        self._end(watch, f"after {watch.question.lasts:g} s")
                    elif not watch.hooks:
                        self._place(watch)
                        watch.wake()
                if not self._watches and not self._paused_until:
                    self._is_checking = False
                    return


watches = Watches()
"""The watches of this process."""
atexit.register(watches.end_process)
os.register_at_fork(after_in_child=watches.forget)


def start_answer(question: Watch, port: int, job: Job, respond: Callable[[Watched], None]) -> None:
    """Answer a question in a separate thread; the arguments are those of `Watches.answer`."""

    def answer() -> None:
        try:
            watches.answer(question, port, job, respond)
        except Exception as error:  # noqa: BLE001 - the client would wait, and Python would write it to the job's log
            respond(Watched(error=describe_exception(error)))

    start_helper(answer, "relay-agent watch")
