"""Tracks which ranks have stopped since they were last resumed together, and shows their stops and a summary.

The first stop after a `continue` or a step is shown immediately and takes the focus. The stops of the other ranks
follow with `preserveFocusHint`, except the stop of the rank that the user has stepped, which takes the focus back. When
all ranks have stopped, or `SUMMARY_DELAY` after the first stop or after a step, one line sums up where all ranks are,
even if some of them are still running. Those may soon wait for the stopped ranks in a collective operation, which
causes no event. So they are looked at again, ever less often, and another line is shown once they wait.

Why stops are not collected before they are shown: ranks that do the same work stop within 50 ms, but one that hangs
never does, and any time limit would delay every step by that much. So stops are shown one by one, and the summary comes
later. What is ugly: a summary is correct only for the moment in which it is made. A rank that runs may begin to wait a
second later without any event, so it has to be looked at again, with growing delays because each look costs every node
a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from relay_client.job_session.members import Member, Members, Place, Stop
from relay_client.job_session.translation import GONE, Ids
from relay_client.job_session.wire import FindPlaces, Wire
from relay_client.stacks import COLLECTIVES
from relay_client.ui.text import format_ranks
from relay_core.dap.messages import Arguments, Body, Request, Response, exception_of, reason_of, with_short_description

# Where all ranks are, in one line: `ranks 0-2, 5-7 at train.py:41; rank 3 in all_reduce; rank 4 running`.

UNKNOWN = "an unknown place"
WAITING = ", waiting for "
"""In a summary: running ranks wait in a collective operation for stopped ones."""
TOGETHER = "Continue brings them together"
MAX_CHILDREN = 4
"""Maximum number of child processes that are named one by one."""


def summary(members: Iterable[Member], running_in: Mapping[int, str]) -> str:
    """Return the summary line.

    Args:
        members: The ranks.
        running_in: What running ranks are doing, by member number: `in all_reduce`.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        if member.name.child is not None and member.stop is None:
            continue  # a data loader is idle most of the time
        groups.setdefault(_where(member, running_in), []).append(member)
    waited_for = _waited_for(groups)
    is_named = any(WAITING in where for where in groups)
    reason = f"{WAITING}{names_of(waited_for)}" if waited_for and not is_named else ""
    parts = [f"{names_of(found)} {where}{reason if _is_waiting(where) else ''}" for where, found in groups.items()]
    has_exception = any(member.stop.body.get("reason") == "exception" for member in waited_for if member.stop)
    return "; ".join([*parts, *([TOGETHER] if waited_for and not has_exception else [])])


def _waited_for(groups: Mapping[str, list[Member]]) -> list[Member]:
    """Return the stopped ranks, if all running ranks are in a collective operation, which the others do not reach."""
    running = [where for where, found in groups.items() if any(member.stop is None for member in found)]
    if not running or not all(map(_is_waiting, running)):
        return []
    return [member for found in groups.values() for member in found if member.stop is not None and member.name.is_rank]


def _is_waiting(where: str) -> bool:
    return where.removeprefix("in ").partition(",")[0] in COLLECTIVES


def _where(member: Member, running_in: Mapping[int, str]) -> str:
    stop = member.stop
    if stop is None:
        return running_in.get(member.number) or "running"
    found = exception_of(stop.body)
    return f"at {stop.place or UNKNOWN}{f' ({found.name})' if found else ''}"


def names_of(members: Iterable[Member]) -> str:
    """Return the names of members, such as `ranks 0-2, 5`; for child processes, each name or only their number."""
    found = list(members)
    ranks = [member.name.rank for member in found if member.name.is_rank and member.name.rank is not None]
    texts = [member.name.label for member in found if not member.name.is_rank or member.name.rank is None]
    if len(children := [member for member in found if member.name.child is not None]) > MAX_CHILDREN:
        texts = [member.name.label for member in found if not (member.name.is_rank or member in children)]
        texts.append(f"{len(children)} child processes")
    if ranks:
        texts.insert(0, format_ranks(ranks).replace(",", ", "))
    return ", ".join(texts)


SUMMARY_DELAY = 1.0
"""Seconds from the first stop or a step to the summary; ranks doing the same work stop within 50 ms of each other."""
PLACES_DELAY = 1.5
"""Seconds to wait for the places of ranks that have not stopped."""
FIRST_LOOK, LAST_LOOK = 2.0, 60.0
"""Seconds until running ranks are looked at again; they double each time, up to the second number."""
STACK: Arguments = {"startFrame": 0, "levels": 20}
"""Arguments that equal those of VS Code's call stack requests, so that one response can answer both requests."""


class Stops:
    """The stops of one session.

    Args:
        members: The ranks.
        ids: Translates the ids in stacks.
        wire: Sends and receives messages.
    """

    def __init__(self, members: Members, ids: Ids, wire: Wire) -> None:
        self._members = members
        self._ids = ids
        self._wire = wire
        self._awaited: set[int] = set()
        """Members that were resumed and have not stopped since."""
        self._was_resumed = False
        """True once the editor has resumed anything."""
        self._has_focus = False
        """True once a stop has taken the focus since ranks were last resumed."""
        self._returns: int | None = None
        """The member that takes the focus back when it stops."""
        self._due_at: float | None = None
        """When the summary is due."""
        self._places_until: float | None = None
        """When the summary is shown without the places of running ranks."""
        self._questions: list[Request] = []
        """Console commands that are answered with the summary."""
        self._questions_until: float | None = None
        """When they are answered without the places of running ranks."""
        self._last_summary = ""
        self._summed_up: set[int] = set()
        """The members at the last summary."""
        self._running_in: Mapping[int, str] = {}
        """What running ranks were doing at the last summary."""
        self._look_at: float | None = None
        """When to look again at running ranks, which may be waiting by then."""
        self._look_delay = FIRST_LOOK
        self._is_looking = False
        """True while their places are awaited for that reason."""

    # Called by the session:

    def resumed_by_editor(self, members: list[Member], lead: Member, step_began: float | None) -> None:
        """Record that these members are running, and that the stop of `lead` takes the focus back.

        Args:
            members: The members that were resumed.
            lead: The member that the editor's request names.
            step_began: When the step began, or None. A step should end soon, so its summary does not wait for a stop.
        """
        self._awaited, self._was_resumed = {member.number for member in members}, True
        self._has_focus, self._returns = False, lead.number
        self._places_until = self._look_at = None
        self._is_looking = False
        self._due_at = step_began + SUMMARY_DELAY if step_began is not None else None
        self._last_summary = ""

    def stopped(self, member: Member, body: Body, now: float, hit: list[int]) -> bool:
        """Handle a rank's `stopped` event; return whether the stop takes the focus.

        Args:
            member: The rank.
            body: The body of the event.
            now: The time.
            hit: The session's ids of the breakpoints that the rank has hit.
        """
        thread = body.get("threadId")
        is_alone = not any(other.stop is not None for other in self._members if other is not member)
        takes_focus = is_alone or not self._has_focus or member.number == self._returns
        self._has_focus = True
        if member.number == self._returns:
            self._returns = None
        changed = {**with_short_description(body), **({"hitBreakpointIds": hit} if hit else {})}
        member.is_pausing = False
        stop = member.stop = Stop(thread if isinstance(thread, int) else member.main_thread, changed, hit)
        if takes_focus:
            self._members.chosen = member.number
        if self._due_at is None and self._places_until is None:
            self._due_at = now + SUMMARY_DELAY
        self._wire.ask(
            member.number, "stackTrace", {"threadId": stop.thread, **STACK}, partial(self._located, member, stop)
        )
        return takes_focus

    def left(self, member: int) -> None:
        """Stop waiting for a member, and show the next summary even if its text has not changed."""
        self._awaited.discard(member)
        self._last_summary = ""

    def answer_stack(self, member: Member, request: Request, arguments: Arguments) -> bool:
        """Answer a request for a stopped thread's call stack with the response that the session has or is awaiting."""
        stop = member.stop
        if stop is None or {"threadId": stop.thread, **STACK} != dict(arguments):
            return False
        if not stop.is_located:
            stop.waiting.append(request)
        elif stop.stack is None:
            return False
        else:
            self._wire.answer(request, stop.stack)
        return True

    def answer_where(self, request: Request, now: float) -> None:
        """Answer a console command with the summary, once the places of running ranks are known."""
        self._questions.append(request)
        if self._questions_until is None:
            if self._find_places():
                self._questions_until = now + PLACES_DELAY
            else:
                self._answer_questions({})

    def places_found(self, places: Mapping[int, str]) -> None:
        """Show the summary with what running ranks are doing, and answer console commands."""
        if self._places_until is not None:
            self._places_until = None
            self._show(places)
        elif self._is_looking and WAITING in summary(self._members, places):
            self._show(places)
        self._is_looking = False
        self._answer_questions(places)

    @property
    def next_deadline(self) -> float | None:
        """When the summary is due."""
        deadlines = (self._due_at, self._places_until, self._questions_until, self._look_at)
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self, now: float) -> None:
        """Show the summary if it is due."""
        if self._places_until is not None and now >= self._places_until:
            self.places_found({})
        if self._questions_until is not None and now >= self._questions_until:
            self._answer_questions({})
        if self._due_at is not None and now >= self._due_at:
            self._sum_up(now)
        if self._look_at is not None and now >= self._look_at:
            self._look(now)

    def sum_up_if_complete(self, now: float) -> None:
        """Show the summary if no more stops are awaited."""
        is_due = self._due_at is not None or self._places_until is not None
        if not is_due and self._has_new_ranks():
            self._due_at = now + SUMMARY_DELAY
            return
        if not is_due or self._awaited:
            return
        stops = [member.stop for member in self._members if member.stop is not None or member.name.child is None]
        # If the editor has resumed nothing, it is unknown how many ranks will reach a breakpoint, so the summary waits.
        is_complete = self._was_resumed or all(stop is not None for stop in stops)
        is_located = all(stop.is_located for stop in stops if stop is not None)
        if is_complete and is_located and (self._places_until is None or None not in stops):
            self._sum_up(now)

    # Stacks:

    def _located(self, member: Member, stop: Stop, response: Response) -> None:
        body = response.get("body")
        stop.is_located = True
        is_current = member.stop is stop
        if is_current and response.get("success") is True and isinstance(body, dict):
            stop.stack, stop.place = self._ids.to_editor("stackTrace", member.number, body), _place(body)
        waiting, stop.waiting = stop.waiting, []
        for request in waiting:
            if not is_current:
                self._wire.answer_outdated(request, GONE)
            elif stop.stack is None:
                self._wire.fail(request, reason_of(response))
            else:
                self._wire.answer(request, stop.stack)
        if is_current:
            self._awaited.discard(member.number)
            self._show_found_places()

    # The summary:

    def _sum_up(self, now: float) -> None:
        """Show the summary, once it is known what running ranks are doing."""
        self._due_at = None
        is_incomplete = self._find_places()
        self._places_until = now + PLACES_DELAY if is_incomplete else None
        self._look_at, self._look_delay = now + FIRST_LOOK if is_incomplete else None, FIRST_LOOK
        if not is_incomplete:
            self._show({})

    def _look(self, now: float) -> None:
        """Find out whether the running ranks wait for others by now, unless the last summary names that."""
        is_unclear = bool(self._awaited) or any(member.stop is not None for member in self._members)
        self._is_looking = is_unclear and WAITING not in self._last_summary and self._find_places()
        self._look_delay = min(2 * self._look_delay, LAST_LOOK)
        self._look_at = now + self._look_delay if self._is_looking else None

    def _find_places(self) -> bool:
        """Find out what running ranks are doing; return False if none is running."""
        running = {one.number for one in self._members if one.stop is None and one.name.child is None}
        if running:
            self._wire.put(FindPlaces(frozenset(running)))
        return bool(running)

    def _has_new_ranks(self) -> bool:
        """Whether ranks have joined since the last summary: while others are stopped, they often wait for these."""
        numbers = {member.number for member in self._members if member.name.child is None}
        is_any_stopped = any(member.stop is not None for member in self._members)
        return is_any_stopped and bool(self._summed_up) and not numbers <= self._summed_up

    def _answer_questions(self, places: Mapping[int, str]) -> None:
        questions, self._questions, self._questions_until = self._questions, [], None
        for request in questions:
            text = summary(self._members, places) or "no rank is attached"
            self._wire.answer_text(request, text)

    def _show_found_places(self) -> None:
        """Show the summary again if a place was still unknown in it: a busy node responds late."""
        is_shown = self._due_at is None and self._places_until is None and UNKNOWN in self._last_summary
        if is_shown and all(member.stop is None or member.stop.is_located for member in self._members):
            self._show(self._running_in)

    def _show(self, places: Mapping[int, str]) -> None:
        self._running_in = places
        self._summed_up = {member.number for member in self._members}
        if len(self._members) < 2:
            return
        text = summary(self._members, places)
        if text != self._last_summary:
            self._last_summary = text
            self._wire.show(text)


def _place(body: Body) -> Place | None:
    match body:
        case {"stackFrames": [{"line": int(line), "source": {"path": str(file)}}, *_]}:
            return Place(file, line)
    return None
