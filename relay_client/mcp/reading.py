"""What a coding agent can read: ranks, stacks, verdicts, variables and values. Reading does not stop any rank."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from relay_client.agents.roster import absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import undefined_name
from relay_client.compare.paths import as_plain_read
from relay_client.diverging import watching_of
from relay_client.hang.examine import examine_once
from relay_client.hang.reports import RankReport
from relay_client.ranks.record import Target
from relay_client.ranks.record import encode as encode_record
from relay_client.ranks.view import Kind, rank_view
from relay_client.stacks import collect_stacks, collective_of, frames_as_objects, read_replies
from relay_client.ui.text import format_ranks, parse_chosen_ranks
from relay_client.verbs.hang import Hang
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Session, Verb, check
from relay_client.verbs.watch import Watch
from relay_client.watching import HitOf, Watching
from relay_core.agent_api.announcement import State
from relay_core.agent_api.watch import WAIT
from relay_core.errors import NoListener, RelayDebugError, UsageError
from relay_core.foreign import escape_controls

# The expressions permitted without `--allow-control`: paths (`relay_client.compare.paths`); sans-IO.


class ControlRefused(RelayDebugError):
    """The call requires `--allow-control`, or the rank cannot be controlled at the moment."""


def as_read(expression: str, *, completely: bool) -> str:
    """Return the expression of `as_plain_read`.

    Raises:
        ControlRefused: the expression is not a path.
    """
    try:
        return as_plain_read(expression, completely=completely)
    except UsageError as error:
        raise ControlRefused(
            error.sentence,
            hint=f"{error.hint}; to permit other expressions, the user must start 'relay-client mcp' with "
            "--allow-control",
        ) from None


Items = list[dict[str, Any]]

LISTING = "call the 'ranks' tool to list all ranks"
NAME_HINT = "call 'variables' to list the variables of the functions that a rank is executing"
PER_PROCESS = frozenset({"ports", "pids", "hosts"})
"""Fields of a group that identify its processes in other ways than by rank."""
WAITS = 3
"""Checks after which a rank in a collective operation counts as waiting for the stopped ranks."""
POLL_INTERVAL = 0.3
"""Seconds between two checks of ranks that have not stopped; a check takes each agent about a millisecond."""


def chosen_ranks(ranks: str) -> set[int] | None:
    """Return the ranks in an argument; None for "all".

    Raises:
        UsageError: the argument is not a list of ranks.
    """
    return parse_chosen_ranks(ranks.strip())


class Reading:
    """The read-only tools.

    Args:
        tunnels: The client's tunnels, already entered.
        allow_code: Whether expressions may execute code in the job.
    """

    def __init__(self, tunnels: Tunnels, *, allow_code: bool) -> None:
        self._tunnels = tunnels
        self._session = Session(tunnels, waits=False)
        self.allow_code = allow_code

    async def connect(self) -> None:
        """Search for agents if none is known.

        Raises:
            NoListener: no job was found.
            RelayDebugError: the relay or the credentials are unusable.
        """
        if not len(self._tunnels.roster):
            await self._session.search()

    async def ranks(self) -> Items:
        """Return all processes that can be debugged, and those ranks of their jobs that have no process."""
        absent = [
            Target(one.port, one.rank, kind=(Kind.ENDED if one.has_ended else Kind.UNKNOWN).value, text=one.reason)
            for one in absent_ranks(self._tunnels.roster)
        ]
        return [encode_record(target) for target in absent] + [
            {"host": node.host, "link": node.link, **encode_record(target)}
            for node in self._tunnels.nodes()
            for target in node.targets
        ]

    async def stacks(self, ranks: str, *, all_threads: bool) -> Items:
        """Return the stacks, grouped by identical stack."""
        found = await self._perform(Stacks(ranks.strip(), all_threads=all_threads), "groups")
        return _required(_named_by_rank(found), None)

    async def verdict(self) -> Items:
        """Return the verdict on each job."""
        return await self._perform(Hang(), "jobs")

    async def variables(self, rank: int) -> Items:
        """Return the frames of a rank's stopped or main thread with their variables, innermost first."""
        processes = read_replies(await collect_stacks(self._tunnels, str(rank), with_locals=True))
        items: Items = []
        for process in processes:
            if process.halted is None:
                items.append({"error": process.stacks.error or "no stack"})
                continue
            items += frames_as_objects(reversed(process.halted.frames))
        return _required(items, {rank})

    async def evaluate(self, expression: str, ranks: str, seconds: float, verb: type[Evaluate] = Evaluate) -> Items:
        """Return the value of an expression, with equal values grouped."""
        chosen_ranks(ranks)
        evaluated = expression if self.allow_code else as_read(expression, completely=verb is Diff)
        groups = await self._perform(verb(evaluated, ranks.strip(), seconds=seconds), "groups")
        return _named_by_rank(_with_hints(groups))

    async def compare(self, expression: str, ranks: str, seconds: float) -> Items:
        """Return which ranks differ in a value, and the first difference."""
        return await self.evaluate(expression, ranks, seconds, Diff)

    async def watch(self, request: Watch, seconds: float) -> Items:
        """Return what the ranks have reported about a watch, which ends with its last hit or when the time has expired.

        Raises:
            NoListener: no chosen rank has a process.
            UsageError: an argument is invalid.
        """
        check(request)
        clock, watching = asyncio.get_running_loop().time, watching_of(request)
        ends = clock() + seconds
        try:
            found = watching.objects(await self._poll(request, watching))
            while not watching.end and (left := ends - clock()) > 0:
                new = watching.objects(await self._poll(request, watching, wait=min(WAIT, left)))
                found += new
                await asyncio.sleep(0 if new else POLL_INTERVAL)
        finally:
            last = await self._poll(request, watching, is_last=True)
        found += watching.objects(last)
        notes = [*watching.notes(), *([] if found else [watching.why_no_hits(has_condition=bool(request.when))])]
        return [*({"note": note} for note in notes), *found]

    async def _poll(self, request: Watch, watching: Watching, **fields: Any) -> list[HitOf]:
        answer: Any = await self._session.perform(request.after_hits(watching.cursors, **watching.changes, **fields))
        return watching.received(answer.data)

    async def wait_for_stop(self, ranks: str, seconds: float, *, wait_for_all: bool) -> Items:
        """Return where the chosen ranks are once one or all of them are stopped, or once the time has expired."""
        chosen = chosen_ranks(ranks)
        ends = asyncio.get_running_loop().time() + seconds
        waiting = 0
        while True:
            found = await self._places(chosen)
            stopped = [item["stopped"] for item in found]
            # A rank that waits for a stopped one does not stop, but it may just be leaving the operation.
            waiting = waiting + 1 if all(item["stopped"] or item["waiting_for"] for item in found) else 0
            enough = any(stopped) and (not wait_for_all or all(stopped) or waiting > WAITS)
            if enough or asyncio.get_running_loop().time() + POLL_INTERVAL > ends:
                return _required(sorted(found, key=lambda item: not item["stopped"]), chosen)
            await asyncio.sleep(POLL_INTERVAL)

    async def _places(self, chosen: Collection[int] | None) -> Items:
        verdicts = await examine_once(self._tunnels, None)
        places = (place for verdict in verdicts for place in places_in(verdict.job.ranks.values()))
        return [place for place in places if chosen is None or place["rank"] in chosen]

    async def _perform(self, request: Verb, items: str) -> Items:
        """Return the items in the answer to a request.

        Raises:
            NoListener: there are none; the hint names a tool instead of a command.
        """
        try:
            answer: Any = await self._session.perform(request)
        except NoListener as error:
            raise NoListener(error.sentence, hint=LISTING) from None
        found: Items = answer.data[items]
        return found


def places_in(reports: Collection[RankReport]) -> Items:
    """Return where the ranks of a job are.

    Args:
        reports: The ranks. If all running ranks are in collective operations, they wait for the stopped ranks.
    """
    operations = {one.rank: collective_of(one.main) if one.main and not one.is_stopped else "" for one in reports}
    stopped = [one.rank for one in reports if one.is_stopped]
    waits = all(operations[one.rank] for one in reports if not one.is_stopped)
    return [
        {
            **_place(one),
            "collective": operations[one.rank],
            "waiting_for": stopped if waits and operations[one.rank] else [],
        }
        for one in reports
    ]


def _place(report: RankReport) -> dict[str, Any]:
    target = report.target
    waits = target is not None and target.state in {State.WAITING, State.CRASHED}
    return {
        "rank": report.rank,
        "stopped": report.is_stopped,
        "place": escape_controls(report.place),
        "reason": rank_view(target).text if target is not None and waits else "",
        "holder": target.attachment.user if target is not None and target.attachment else None,
        "error": report.silence,
    }


def _with_hints(items: Items) -> Items:
    """Add a hint to each error that a variable's name has caused."""
    return [{**item, "hint": NAME_HINT} if undefined_name(item["place"], item["error"]) else item for item in items]


def _named_by_rank(items: Items) -> Items:
    """Leave out how else each process is identified, if all processes of a group have ranks: `ranks` returns that."""
    return [
        {name: value for name, value in item.items() if name not in PER_PROCESS}
        if len(item["ranks"]) == len(item["ports"])
        else item
        for item in items
    ]


def _required(items: Items, ranks: Collection[int] | None) -> Items:
    """Return the items.

    Raises:
        NoListener: the list is empty.
    """
    if not items:
        what = "is registered" if ranks is None else f"has {format_ranks(ranks)}"
        raise NoListener(f"no process {what}", hint=LISTING)
    return items
