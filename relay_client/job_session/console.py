"""The debug console of a session of all ranks: its commands, the ranks' output, and lines about connections."""

from __future__ import annotations

from relay_client.compare.console import Command
from relay_client.editor.messages import CONSOLE, IMPORTANT, PREFIX
from relay_client.job_session.members import Group, Member
from relay_client.job_session.stepping import Stepping
from relay_client.job_session.stops import names_of
from relay_client.job_session.thread_list import MANY, ThreadList
from relay_client.job_session.wire import AskRanks, Wire
from relay_client.ui.text import in_plural
from relay_core.dap.messages import Body, Request
from relay_core.errors import UsageError


def run_command(request: Request, command: Command, stepping: Stepping, threads: ThreadList, wire: Wire) -> None:
    """Answer a command about the group or the list of threads; pass any other one on to the owner of the session."""
    try:
        match command.name:
            case "group":
                if command.expression:
                    stepping.group = Group.parse(command.expression)
                wire.answer_text(request, stepping.group_text)
            case "expand":
                threads.expanded = Group.parse(command.expression or "all").ranks
                threads.note_change()
                wire.answer_text(request, "the chosen ranks are now listed one by one")
            case "collapse":
                threads.expanded = frozenset()
                threads.note_change()
                rest = "the ranks at each place now share an entry"
                wire.answer_text(request, f"if there are more than {MANY} ranks, {rest}")
            case _:
                wire.put(AskRanks(request, command))
    except UsageError as error:
        wire.fail(request, f"{error.sentence}; {error.hint}")


# What the debug console shows about the ranks: their output, and relay-client's lines about their connections.
#
# The output of a job is shown with the rank in front of each line. A line about one connection, for example about how
# its rank has ended, is shown once for all ranks that share it: `ranks 0-63 ended with status 0`.

LINE_DELAY = 0.3
"""Seconds to wait for the same line about other ranks."""
_WAITING = "waiting for "
_SUBJECT = "\0"
"""Placeholder for the name of the rank in a line."""


class ConsoleLines:
    """The lines of one session.

    Args:
        wire: Sends the lines.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._due: dict[tuple[str, str], list[Member]] = {}
        """Members by line and category; the line has a placeholder in place of the name of its member."""
        self.next_deadline: float | None = None
        """When lines are due."""
        self._shown: set[str] = set()
        """Lines that name no rank: each is shown once."""
        self._waiting: set[int] = set()
        """Members, by number, whose first line about waiting was left out."""
        self._unfinished: Member | None = None
        """The member whose last output did not end with a line break."""

    def received(self, member: Member, body: Body, now: float) -> None:
        """Handle a rank's `output` event, which already contains the session's ids."""
        match body:
            case {"category": "telemetry"}:
                return
            case {"category": str(category), "output": str(text)} if category in {CONSOLE, IMPORTANT}:
                if text.startswith(PREFIX):
                    self.about(member, text.removeprefix(PREFIX).rstrip("\n"), category, now)
                    return
        self._show_output(member, body)

    def about(self, member: Member, text: str, category: str, now: float) -> None:
        """Show a line about the connection to a rank."""
        if text.startswith(_WAITING) and member.number not in self._waiting:
            self._waiting.add(member.number)  # its debugger starts within a second or two
            return
        where = member.name.where
        if not where or where not in text:
            if text not in self._shown:
                self._shown.add(text)
                self._wire.show(text, category)
            return
        self._due.setdefault((text.replace(where, _SUBJECT), category), []).append(member)
        self.next_deadline = now + LINE_DELAY if self.next_deadline is None else self.next_deadline

    def tick(self, _now: float) -> None:
        """Show the lines that are due."""
        self.flush()

    def flush(self) -> None:
        """Show all lines now."""
        due, self._due, self.next_deadline = self._due, {}, None
        for (text, category), members in due.items():
            name = members[0].name.where if len(members) == 1 else names_of(members)
            start, subject, end = text.partition(f"{_SUBJECT} ")
            line = f"{subject}{in_plural(end)}" if subject and not start and len(members) > 1 else text
            self._wire.show(line.replace(_SUBJECT, name), category)

    def _show_output(self, member: Member, body: Body) -> None:
        text = body.get("output")
        if not isinstance(text, str) or not text:
            self._wire.event("output", body)
            return
        before = "" if self._unfinished is member else f"{member.name.label} | "
        broken = "\n" if self._unfinished not in {None, member} else ""
        self._unfinished = None if text.endswith("\n") else member
        rest = text.removesuffix("\n")
        lines = rest.replace("\n", f"\n{member.name.label} | ")
        self._wire.event("output", {**body, "output": f"{broken}{before}{lines}{text[len(rest) :]}"})
