"""The breakpoints that the editor has set, and the results from the ranks.

Each rank receives all breakpoints before it runs. The editor receives the union: a breakpoint is verified if any rank
has verified it; if other ranks have not, its message states how many have. Each later change is sent as an event.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TypeGuard

from relay_client.compare.console import IN_BRACES
from relay_client.job_session.members import Member, Members, Phase
from relay_client.job_session.wire import Wire
from relay_core.dap.messages import Body, Request, Response, arguments_of, reason_of
from relay_core.json_values import items, mapping, text

# The name `RANK` in conditions and logpoints: each rank receives them with its own number in place of the name.
#
#     RANK == 3 and loss > 10      rank 3 receives   3 == 3 and loss > 10
#     rank {RANK}: {loss}          rank 3 receives   rank {3}: {loss}
#
# The debugger evaluates a condition with the variables of the frame. If `RANK` were set as a variable of the job
# instead, the job would see it, and so would every other session.

NAME = "RANK"


def for_rank(breakpoint_: Body, rank: int | None) -> Body:
    """Return a breakpoint as a rank receives it; it is unchanged for a process without a rank."""
    if rank is None:
        return breakpoint_
    changed = dict(breakpoint_)
    if _has_name(condition := changed.get("condition")):
        changed["condition"] = _with_number(condition, rank)
    if _has_name(message := changed.get("logMessage")):
        changed["logMessage"] = IN_BRACES.sub(lambda found: f"{{{_with_number(found[1], rank)}}}", message)
    return changed


def _has_name(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and NAME in text


def _with_number(expression: str, rank: int) -> str:
    """Return an expression with the number in place of the name, or unchanged if it is invalid or binds the name."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return expression  # the debugger reports the error
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == NAME]
    is_bound = any(not isinstance(node.ctx, ast.Load) for node in names)
    is_bound |= any(isinstance(node, ast.arg) and node.arg == NAME for node in ast.walk(tree))
    return ast.unparse(_Number(rank).visit(tree)) if names and not is_bound else expression


class _Number(ast.NodeTransformer):
    def __init__(self, rank: int) -> None:
        self._rank = rank

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._rank) if node.id == NAME else node


BREAKPOINT_PATIENCE = 3.0
"""Seconds to wait for the responses of all ranks; the editor then receives the results so far, and later ones as
events."""
NO_RANK = "no rank has confirmed this breakpoint yet"
HOLD = re.compile(r"@hold\b")
"""The beginning of the message of a logpoint that stops all ranks; the job makes it stop the one that reaches it."""
_SET = frozenset({"setBreakpoints", "setDataBreakpoints", "setFunctionBreakpoints"})
"""Requests that list breakpoints."""


@dataclass(eq=False)
class _BreakpointSet:
    """The breakpoints in one request: those in a file, or all function or data breakpoints."""

    request: Request
    ids: list[int]
    """The session's ids."""
    results: dict[int, list[Body]] = field(default_factory=dict)
    """The ranks' results, by member."""
    shown: list[Body] = field(default_factory=list)
    """The breakpoints as the editor last received them."""
    awaited: set[int] = field(default_factory=set)
    """Members without a result."""
    answer_at: float | None = None
    """The latest time at which the editor is answered; None once it has been answered."""

    @property
    def wanted(self) -> list[Body]:
        """The breakpoints as the editor has sent them."""
        found = items(arguments_of(self.request).get("breakpoints"))
        return [dict(each) for each in found if isinstance(each, dict)]

    def union(self, members: Members) -> list[Body]:
        """Return the breakpoints for the editor."""
        lists = [found for member in members if (found := self.results.get(member.number)) is not None]
        united: list[Body] = []
        for index, (number, wanted) in enumerate(zip(self.ids, self.wanted, strict=True)):
            line = {"line": wanted["line"]} if "line" in wanted else {}
            results = [found[index] for found in lists if index < len(found)]
            united.append({"id": number, **line, **_united(results)})
        return united


def _united(results: list[Body]) -> Body:
    """Return one breakpoint with the combined results of all ranks."""
    verified = [result for result in results if result.get("verified") is True]
    if not verified:
        refused = [each for each in results if each.get("reason") != "pending"]  # by the rank that has the value
        first = next(iter(refused or results), {"message": NO_RANK})
        return {**_without_id(first), "verified": False}
    united = _without_id(verified[0])
    if len(verified) < len(results):
        united["message"] = f"verified in {len(verified)} of {len(results)} ranks"
    return united


def _without_id(result: Body) -> Body:
    return {name: value for name, value in result.items() if name != "id"}


class Breakpoints:
    """The breakpoints of one session, including exception filters.

    Args:
        members: The ranks.
        wire: Sends and receives messages.
    """

    def __init__(self, members: Members, wire: Wire) -> None:
        self._members = members
        self._wire = wire
        self._numbers = itertools.count(1)
        self._sets: dict[str, _BreakpointSet] = {}
        """By file; others by command."""
        self._others: dict[str, Request] = {}
        """By command: other requests that each rank receives before it runs, such as those for exception filters."""
        self._found: dict[tuple[int, int], int] = {}
        """The session's ids of the ranks' breakpoints, by member and the rank's id."""

    # From the editor:

    def requested(self, request: Request, now: float) -> None:
        """Handle a request that sets breakpoints or exception filters."""
        if request["command"] not in _SET:
            self._others[request["command"]] = request
            for member in self._taking:
                self._wire.ask(member.number, request["command"], arguments_of(request))
            self._wire.answer(request, {})
            return
        key = text(mapping(arguments_of(request).get("source")).get("path")) or request["command"]
        replaced = self._sets.get(key)
        found = _BreakpointSet(request, [], answer_at=now + BREAKPOINT_PATIENCE)
        found.ids = [next(self._numbers) for _ in found.wanted]
        found.awaited = {member.number for member in self._members}
        self._sets[key] = found
        if replaced is not None:
            self._answer(replaced)
        for member in self._taking:
            self._send(member, found)
        self._answer_if_complete(found)

    @property
    def _taking(self) -> list[Member]:
        return [member for member in self._members if member.phase is not Phase.CONNECTING]

    # From the ranks:

    def configure(self, member: Member) -> None:
        """Send a rank all breakpoints and filters that have been set; its debugger handles requests in order."""
        for request in self._others.values():
            self._wire.ask(member.number, request["command"], arguments_of(request))
        for found in self._sets.values():
            self._send(member, found)

    def left(self, member: int) -> None:
        """Forget the results of a rank that has left."""
        for found in self._sets.values():
            found.results.pop(member, None)
            found.awaited.discard(member)
            self._answer_if_complete(found)
            self._show_changes(found)
        self._found = {key: number for key, number in self._found.items() if key[0] != member}

    def changed(self, member: int, body: Body) -> None:
        """Handle a rank's `breakpoint` event."""
        changed = body.get("breakpoint")
        local = changed.get("id") if isinstance(changed, dict) else None
        number = self._found.get((member, local)) if isinstance(local, int) else None
        for found in self._sets.values():
            if number in found.ids and member in found.results and isinstance(changed, dict):
                found.results[member][found.ids.index(number)] |= changed
                self._show_changes(found)

    def ids_of(self, member: int, locals_: object) -> list[int]:
        """Return the session's ids for a list of the rank's ids of breakpoints."""
        wanted = locals_ if isinstance(locals_, list) else []
        return [self._found[member, local] for local in wanted if (member, local) in self._found]

    def hold_all(self, numbers: list[int]) -> bool:
        """Return whether one of these breakpoints holds all ranks, because its log message begins with `@hold`."""
        wanted = [pair for found in self._sets.values() for pair in zip(found.ids, found.wanted, strict=True)]
        return any(number in numbers and HOLD.match(text(each.get("logMessage"))) for number, each in wanted)

    @property
    def next_deadline(self) -> float | None:
        """When to answer the editor without the ranks that have not answered."""
        return min((found.answer_at for found in self._sets.values() if found.answer_at is not None), default=None)

    def tick(self, now: float) -> None:
        """Answer those requests from the editor whose time limit has expired."""
        for found in self._sets.values():
            if found.answer_at is not None and now >= found.answer_at:
                self._answer(found)

    # Between the editor and the ranks:

    def _send(self, member: Member, found: _BreakpointSet) -> None:
        wanted = [for_rank(each, member.name.rank) for each in found.wanted]
        arguments = {**arguments_of(found.request), "breakpoints": wanted}
        self._wire.ask(member.number, found.request["command"], arguments, partial(self._answered, member, found))

    def _answered(self, member: Member, found: _BreakpointSet, response: Response) -> None:
        found.awaited.discard(member.number)
        if self._members.get(member.number) is member and found in self._sets.values():
            self._record(member, found, response)
        self._answer_if_complete(found)
        self._show_changes(found)

    def _record(self, member: Member, found: _BreakpointSet, response: Response) -> None:
        results = (response.get("body") or {}).get("breakpoints") if response.get("success") is True else None
        if not isinstance(results, list):
            results = [{"verified": False, "message": reason_of(response)} for _ in found.ids]
        kept = [dict(each) if isinstance(each, dict) else {"verified": False} for each in results[: len(found.ids)]]
        found.results[member.number] = kept
        for number, result in zip(found.ids, kept, strict=False):
            if isinstance(local := result.get("id"), int):
                self._found[member.number, local] = number

    def _answer_if_complete(self, found: _BreakpointSet) -> None:
        if not found.awaited:
            self._answer(found)

    def _answer(self, found: _BreakpointSet) -> None:
        if found.answer_at is not None:
            found.answer_at = None
            found.shown = found.union(self._members)
            self._wire.answer(found.request, {"breakpoints": found.shown})

    def _show_changes(self, found: _BreakpointSet) -> None:
        """Send an event for each breakpoint that has changed since the editor received it."""
        if found.answer_at is not None or found not in self._sets.values():
            return
        before, found.shown = found.shown, found.union(self._members)
        for old, new in zip(before, found.shown, strict=True):
            if old != new:
                self._wire.event("breakpoint", {"reason": "changed", "breakpoint": new})
