"""The threads that the editor shows: `rank 3 · MainThread`.

If there are more than `MANY` ranks, the ranks at each place share an entry, such as `ranks 0-62 at train.py:41`, and
all running ranks share another. A shared entry has the id of one of its members and shows the stack and the variables
of that member. Expanded members, and a member that is alone at its place, have their own entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from relay_client.job_session.members import Member, Members, Place
from relay_client.job_session.stops import names_of
from relay_client.job_session.translation import THREAD, Ids
from relay_client.job_session.wire import Wire
from relay_core.dap.messages import Body, Event, Response

MANY = 8
"""Maximum number of ranks that are listed one by one: the usual number on a node, which fits into a call stack view."""


CHANGE_DELAY = 0.05
"""Seconds to wait for further changes to a list of many ranks before the editor is made to request it again."""


@dataclass(frozen=True)
class _Entry:
    """One thread as the editor shows it."""

    member: Member
    thread: int
    """The rank's id."""
    name: str


class ThreadList:
    """The threads of one session.

    Args:
        members: The ranks.
        ids: The ids of the session.
        wire: Sends and receives messages.
    """

    def __init__(self, members: Members, ids: Ids, wire: Wire) -> None:
        self.expanded: frozenset[int] | None = frozenset()
        """Ranks that are listed one by one even if there are many; None for all."""
        self._members = members
        self._ids = ids
        self._wire = wire
        self._asked: dict[int, bool] = {}
        """Members that have not answered yet for which threads they have, and whether these have changed since."""
        self._shown: list[Body] = []
        """The threads as the editor has received them, or will receive them with its next request."""
        self._was_compact = False
        self._has_changed = False
        self.next_deadline: float | None = None
        """When changes are due."""

    @property
    def is_compact(self) -> bool:
        """True if the ranks at each place share an entry."""
        return len(self._members.attached) > MANY and self.expanded is not None

    def answer(self) -> Body:
        """Return the body of the response to `threads`."""
        self._shown = self._bodies(self._entries())
        return {"threads": self._shown}

    def _bodies(self, entries: Iterable[_Entry]) -> list[Body]:
        give = self._ids.give
        return [{"id": give(THREAD, entry.member.number, entry.thread), "name": entry.name} for entry in entries]

    # The ranks' threads:

    def ask(self, member: Member) -> None:
        """Ask a rank for its threads; if a request is already pending, ask again after the response."""
        if member.number in self._asked:
            self._asked[member.number] = True
        else:
            self._asked[member.number] = False
            self._wire.ask(member.number, "threads", {}, partial(self._answered, member))

    def _answered(self, member: Member, response: Response) -> None:
        has_changed = self._asked.pop(member.number, False)
        if self._members.get(member.number) is not member:
            return
        found = (response.get("body") or {}).get("threads")
        for each in found if isinstance(found, list) else []:
            match each:
                case {"id": int(thread), "name": str(name)}:
                    is_new, shown = member.threads.get(thread) != name, member.thread_name(thread)
                    member.threads[thread] = name
                    if is_new and self._is_listed(member):
                        self._named(member, thread, shown)
        self.note_change()
        if has_changed:
            self.ask(member)

    def _named(self, member: Member, thread: int, shown: str) -> None:
        """Make the editor request the names of the threads, one of which is new, unless it has been shown before."""
        if thread not in member.shown_stopped:
            self._event(member, thread, "started")
        elif shown != member.thread_name(thread):
            # VS Code drops a thread's stop if `started` follows it, and would then show none of its frames.
            stop = member.stop
            body = stop.body if stop is not None and stop.thread == thread else {"reason": "pause"}
            self._show_thread(member, thread, body, takes_focus=False)

    def happened(self, member: Member, event: Event) -> None:
        """Handle a rank's `thread` event."""
        match event.get("body"):
            case {"reason": "exited", "threadId": int(thread)}:
                if member.threads.pop(thread, None) is not None and self._is_listed(member):
                    self._event(member, thread, "exited")
            case {"threadId": int()}:
                self.ask(member)  # the event does not contain the name of the thread

    def left(self, member: Member) -> None:
        """Remove the threads of a rank that has left."""
        self._asked.pop(member.number, None)
        for thread in sorted({*member.threads, *member.shown_stopped}):
            self._event(member, thread, "exited")
        self.note_change()

    def _event(self, member: Member, thread: int, reason: str) -> None:
        number = self._ids.give(THREAD, member.number, thread)
        self._wire.event("thread", {"reason": reason, "threadId": number})

    # What is stopped:

    def show_stopped(self, member: Member, *, takes_focus: bool) -> None:
        """Show a stop: the thread that has stopped, and the other threads of its process."""
        if takes_focus or self._is_listed(member):
            self.show_stop(member, takes_focus=takes_focus)
        self.note_change()

    def show_stop(self, member: Member, *, takes_focus: bool) -> None:
        """Show the stop of a rank, whether the editor has received it before or not."""
        stop = member.stop
        if stop is None:
            return
        self._show_thread(member, stop.thread, stop.body, takes_focus=takes_focus)
        if self._is_listed(member):
            for thread in member.threads.keys() - {stop.thread}:
                self._show_thread(member, thread, {"reason": "pause"}, takes_focus=False)

    def _show_thread(self, member: Member, thread: int, body: Body, *, takes_focus: bool) -> None:
        if thread not in member.threads and thread not in member.shown_stopped:
            self._event(member, thread, "started")
        member.shown_stopped.add(thread)
        number = self._ids.give(THREAD, member.number, thread)
        hint = {} if takes_focus else {"preserveFocusHint": True}
        rest = {name: value for name, value in body.items() if name != "preserveFocusHint"}
        self._wire.event("stopped", {**rest, "threadId": number, "allThreadsStopped": False, **hint})

    def show_running(self, member: Member, *, but: object = None) -> None:
        """Show that a rank is running.

        Args:
            member: The rank.
            but: The rank's id of a thread that the editor already shows as running.
        """
        for thread in sorted(member.shown_stopped - {but}):
            number = self._ids.give(THREAD, member.number, thread)
            self._wire.event("continued", {"threadId": number, "allThreadsContinued": False})
        member.shown_stopped.clear()
        self.note_change()

    # A list of many ranks:

    def note_change(self) -> None:
        """Record that entries have changed; the changes are shown after `CHANGE_DELAY`."""
        self._has_changed = True

    def schedule(self, now: float) -> None:
        """Set the time at which changes are due."""
        if self._has_changed and self.next_deadline is None and (self.is_compact or self._was_compact):
            self.next_deadline = now + CHANGE_DELAY
        self._has_changed = False

    def tick(self, _now: float) -> None:
        """Show entries that have changed: an editor requests the threads after each `stopped` and each new thread."""
        self.next_deadline, self._was_compact = None, self.is_compact
        entries = list(self._entries())
        before, self._shown = self._shown, self._bodies(entries)
        for entry in entries:
            stop = entry.member.stop
            if stop is not None and stop.is_located and not entry.member.shown_stopped:
                self.show_stop(entry.member, takes_focus=False)
        if before != self._shown and entries:
            self._event(entries[0].member, entries[0].thread, "started")

    # The entries:

    def _is_listed(self, member: Member) -> bool:
        """True if a rank has its own entries, regardless of the state of the other ranks."""
        return not self.is_compact or (self.expanded is not None and member.name.rank in self.expanded)

    def _entries(self) -> Iterator[_Entry]:
        together: dict[Place | int | None, list[Member]] = {}
        for member in self._members.attached:
            if self._is_listed(member):
                yield from self._entries_of(member)
            elif member.stop is not None and member.stop.place is None:
                together[member.number] = [member]
            else:
                together.setdefault(member.stop.place if member.stop is not None else None, []).append(member)
        for found in together.values():
            yield self._entry_of(found)

    def _entries_of(self, member: Member) -> Iterator[_Entry]:
        stopped = [member.stop.thread] if member.stop is not None else []
        for thread in dict.fromkeys([*member.threads, *stopped]):
            yield _Entry(member, thread, member.thread_name(thread))

    def _entry_of(self, found: list[Member]) -> _Entry:
        shown = [member for member in found if member.shown_stopped]
        member = next((each for each in found if each.number == self._members.chosen), (shown or found)[0])
        stop = member.stop
        thread = stop.thread if stop is not None else member.main_thread
        if len(found) == 1:
            return _Entry(member, thread, member.thread_name(thread))
        where = "running" if stop is None else f"at {stop.place}"
        return _Entry(member, thread, f"{names_of(found)} {where}")
