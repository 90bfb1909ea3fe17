"""Commands that a user types into the debug console: `@group 0,3-5`, `@expand 0-7`, `@collapse`, `@ranks`."""

from __future__ import annotations

from typing import Protocol

from relay_client.job_session.groups import Group
from relay_client.job_session.view.thread_list import MANY, ThreadList
from relay_client.job_session.wire import Wire
from relay_core.dap.messages import Request, arguments_of
from relay_core.errors import UsageError

__all__ = ["GroupChoice", "run_command"]

HELP = (
    "use @group all, @group here, @group 0,3-5, @expand 0-7, @expand, @collapse, @ranks, @all EXPRESSION, "
    "@diff EXPRESSION, @stats EXPRESSION or @hang"
)


class GroupChoice(Protocol):
    """The part of a session that these commands use."""

    @property
    def group(self) -> str:
        """The group that moves together."""

    def answer_where(self, request: Request) -> None:
        """Answer a request with where all ranks are."""

    def choose(self, group: Group) -> str:
        """Make another group of ranks move together; return the group as text."""


def run_command(request: Request, session: GroupChoice, threads: ThreadList, wire: Wire) -> bool:
    """Answer an `evaluate` from the debug console if it is a command; return False if it is an expression."""
    text = arguments_of(request).get("expression")
    if not isinstance(text, str) or not text.strip().startswith("@"):
        return False
    name, _, rest = text.strip()[1:].partition(" ")
    if name == "ranks":
        session.answer_where(request)
        return True
    try:
        result = _run(name, rest.strip(), session, threads)
    except UsageError as error:
        wire.fail(request, f"{error.sentence}; {error.hint}")
    else:
        wire.answer(request, {"result": result, "variablesReference": 0})
    return True


def _run(name: str, rest: str, session: GroupChoice, threads: ThreadList) -> str:
    match name:
        case "group":
            return session.choose(Group.parse(rest)) if rest else session.group
        case "expand":
            threads.expanded = Group.parse(rest or "all").ranks
        case "collapse":
            threads.expanded = frozenset()
        case _:
            raise UsageError(f"unknown command: '@{name[:40]}'", hint=HELP)
    threads.note_change()
    if name == "expand":
        return "the chosen ranks are now listed one by one"
    return f"if there are more than {MANY} ranks, the ranks at each place now share an entry"
