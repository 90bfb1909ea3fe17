"""Continues, steps and pauses the ranks of a group together.

A request from the editor names one thread. The session sends the request to every stopped rank in the group, each time
with the rank's own stopped thread; it sends a `pause` to every running rank in the group instead. A request with
`singleThread`, or with a target that one rank has offered, moves only the rank to which the named thread belongs.

`continue` moves child processes with their ranks, because a rank may wait for its children. All other requests move
only ranks if the named thread belongs to a rank, and only child processes if it belongs to a child process.

Why a step goes to the whole group: ranks that stand still do not enter the collective operation in which the stepped
rank then waits. With four gloo ranks before an `all_reduce`, a `next` of one rank alone did not end within 5 s; a
`next` of all four ended after 52 to 98 ms. `singleThread` would be the protocol's way to ask for one rank, but VS Code
never sends it, so its absence cannot mean anything.

Only the response of the lead becomes the editor's; a refusal of another rank is a line in the console. To wait for all
responses would let the slowest rank, or one that hangs, delay every step. The states of ranks change when the requests
are sent, not when they are answered: a `stopped` event may arrive before the response.
"""

from __future__ import annotations

from functools import partial

from relay_client.job_session.members import Group, Member, Members
from relay_client.job_session.stops import Stops, names_of
from relay_client.job_session.thread_list import ThreadList
from relay_client.job_session.translation import Ids
from relay_client.job_session.wire import Wire
from relay_core.dap.messages import Arguments, Request, Response, reason_of
from relay_core.dap.prefetch import RESUMING

MOVING = RESUMING | {"pause"}
"""Requests for a group."""
_STEPS = frozenset({"next", "stepIn", "stepOut"})


class Stepping:
    """The movements of one session's ranks.

    Args:
        members: The ranks.
        ids: The ids of the session.
        stops: Shows the stops.
        threads: Shows the threads.
        wire: Sends and receives messages.
    """

    def __init__(self, members: Members, ids: Ids, stops: Stops, threads: ThreadList, wire: Wire) -> None:
        self.group = Group()
        """The ranks that move together."""
        self._members = members
        self._ids = ids
        self._stops = stops
        self._threads = threads
        self._wire = wire

    @property
    def group_text(self) -> str:
        """The group, and the attached ranks that it currently contains, if they differ: `all ranks: ranks 0-3`."""
        found = names_of(self._members.of(self.group, self._members.get(self._members.chosen)))
        return found if found.replace(", ", ",") == str(self.group) else f"{self.group}: {found or 'none is attached'}"

    def requested(self, request: Request, member: Member, arguments: Arguments, now: float) -> None:
        """Handle a request from the editor.

        Args:
            request: The request.
            member: The rank to which the named thread belongs.
            arguments: The arguments of the request, with the rank's ids.
            now: The time.
        """
        is_alone = arguments.get("singleThread") is True or bool(arguments.get("targetId"))
        self._members.chosen = member.number
        group = [member] if is_alone else self._members.of(self.group, member)
        if request["command"] != "continue":
            is_child = member.name.child is not None
            group = [each for each in group if (each.name.child is not None) == is_child]
        if request["command"] == "pause":
            self.pause(group)
            self._wire.answer(request)
        else:
            began = now if request["command"] in _STEPS else None
            self._resume(request, member, group, arguments, began)

    def pause(self, group: list[Member]) -> None:
        """Stop those of these ranks that are running."""
        for member in group:
            if member.stop is None:
                member.is_pausing = True
                self._wire.ask(member.number, "pause", {"threadId": member.main_thread}, partial(self._paused, member))

    def _resume(
        self, request: Request, chosen: Member, group: list[Member], arguments: Arguments, step_began: float | None
    ) -> None:
        stopped = [member for member in group if member.stop is not None]
        if not stopped:
            self._wire.fail(request, f"no rank in the group is stopped; the group is {self.group}")
            return
        for member in group:
            if member.is_pausing and request["command"] == "continue":  # or it would stop once it leaves its C code
                member.is_pausing = False
                self._wire.ask(member.number, "continue", {"threadId": member.main_thread})
        lead = chosen if chosen in stopped else stopped[0]
        self._stops.resumed_by_editor(stopped, lead, step_began)
        for member in stopped:
            thread = arguments.get("threadId") if member is chosen else member.stop.thread if member.stop else None
            own = {**arguments, "threadId": thread}
            respond = partial(self._respond, request, member) if member is lead else partial(self._report, member)
            self._wire.ask(member.number, request["command"], own, respond)
        for member in stopped:
            self.runs(member, but=arguments.get("threadId") if member is chosen else None)
        if chosen not in stopped:
            self._threads.show_stop(chosen, takes_focus=False)  # the editor shows it as running

    def runs(self, member: Member, *, but: object = None) -> None:
        """Record and show that a rank is running again.

        Args:
            member: The rank.
            but: The rank's id of a thread that the editor already shows as running.
        """
        member.stop = None
        self._ids.resumed(member.number)
        self._threads.show_running(member, but=but)

    def _respond(self, request: Request, member: Member, response: Response) -> None:
        if response.get("success") is True:
            self._wire.answer(request, {"allThreadsContinued": False} if request["command"] == "continue" else None)
        else:
            self._wire.fail(request, f"{member.name.label}: {reason_of(response)}")

    def _paused(self, member: Member, response: Response) -> None:
        member.is_pausing &= response.get("success") is True
        self._report(member, response)

    def _report(self, member: Member, response: Response) -> None:
        if response.get("success") is not True and self._members.get(member.number) is member:
            self._wire.show(f"{member.name.label} refused '{response.get('command')}': {reason_of(response)}")
