"""Sends the phases of a push to all agents: no rank's code is replaced unless all ranks are ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relay_client.agents.requests import ask_agents, check_connected
from relay_client.agents.roster import AbsentRank, absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import label
from relay_client.editor.attaching import remote_path
from relay_client.push.rounds import Rounds
from relay_client.ranks.view import Kind, rank_view
from relay_client.ui.text import LISTING, format_ranks, in_plural, parse_chosen_ranks
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.members import Member, grouped
from relay_core.agent_api.push import ACTIVITIES, Phase, Push, Pushed, State
from relay_core.errors import ConfigurationError, Interrupted, NoListener, RelayDebugError, TimedOut, UsageError
from relay_core.foreign import escape_controls
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.value_parsers import format_ranges

logger = logging.getLogger(__name__)


# Where a local file may be on a node: the paths that are tried, in this order.
#
# its absolute path, then its real path    if client and node share a file system; as for an editor without
# `pathMappings`
# relative to the current directory        which corresponds to the job's start directory, as `"."` in `pathMappings`


def absolute_paths(path: Path) -> tuple[str, ...]:
    """Return the absolute path of a file, and its real path if that is another one."""
    return tuple(dict.fromkeys((os.path.abspath(path), os.path.realpath(path))))  # noqa: PTH100 - keeps links


def node_paths(path: Path) -> tuple[str, ...]:
    """Return the paths at which a local file may be on a node; the last one is for display."""
    here = Path.cwd()
    found = absolute_paths(path)
    mapping = {"pathMappings": [{"localRoot": str(here), "remoteRoot": "."}]}
    relative = (remote_path(each, mapping, ".") for each in reversed(found))
    return (*found, *dict.fromkeys(filter(None, relative)))


# Waits for ranks that are not found, because new code in only part of a job can break its collective operations.

SEARCH_SECONDS = 30.0
"""Seconds to search for ranks; an agent that has just started or has lost its connection is listening within a few
seconds."""
NOTHING_CHANGED = "nothing was changed in any rank"
ALLOWING = "start the job with --debug-allow-edit (RELAY_DEBUG_ALLOW_EDIT=true)"


async def until_found(tunnels: Tunnels, push: Push) -> None:
    """Wait up to `SEARCH_SECONDS` until all chosen ranks have a registered process, except those that have ended.

    Args:
        tunnels: The client's tunnels.
        push: The push, which chooses ranks of the jobs that are found.

    Raises:
        TimedOut: some ranks are not found.
        RelayDebugError: a permanent error occurred, such as invalid credentials.
    """

    def missing() -> list[AbsentRank]:
        absent = absent_ranks(tunnels.roster, parse_chosen_ranks(push.ranks))
        return [one for one in absent if not one.has_ended and push.selects(one.rank, one.port)]

    if awaited := [absent.rank for absent in missing() if absent.may_register]:
        which = f"{format_ranks(awaited)}, which {'are' if len(awaited) > 1 else 'is'} not registered"
        logger.warning("waiting up to %g s for %s", SEARCH_SECONDS, which)
        found = tunnels.search.wait_for(
            lambda: None if any(absent.may_register for absent in missing()) else True, lambda _why: None
        )
        await first_completed(found, timeout=SEARCH_SECONDS)
    if absent := missing():
        verb = "were" if len(absent) > 1 else "was"
        hint = _choosing_others(_chosen(tunnels.roster, push), {one.port for one in absent})
        ranks = format_ranks({one.rank for one in absent})
        raise TimedOut(f"{ranks} {verb} not found; {NOTHING_CHANGED}", hint=hint or LISTING)


Chosen = Sequence[tuple[AgentInfo, TargetInfo]]
"""The registered processes that a push is for, with their agents."""


def _chosen(agents: Iterable[AgentInfo], push: Push) -> Chosen:
    return [(agent, target) for agent in agents for target in agent.targets if push.selects(target.rank, target.port)]


def _are_of_one_job(chosen: Chosen) -> bool:
    return len({target.base_port for _, target in chosen}) == 1


def _choosing_others(chosen: Chosen, without: Collection[int]) -> str:
    """Return a hint with the option that selects all processes except those with these ports; "" if none is left."""
    others = [target for _, target in chosen if target.port not in without]
    if _are_of_one_job(chosen) and (ranks := [target.rank for target in others if target.rank is not None]):
        return f"add --ranks {format_ranges(sorted(ranks))} to replace the code in the other ranks only"
    ports = format_ranges(sorted(target.port for target in others))
    return f"add --ports {ports} to replace the code in the other processes only" if others else ""


def _sentences(clauses: Iterable[tuple[tuple[Member, ...], str]]) -> str:
    """Return processes and what is true of them as text, each fact once: `rank 0 is stopped, ranks 1-2 are running`."""
    groups = [(group.members, group.error) for group in grouped(Pushed(of, error=end) for of, end in clauses)]
    return ", ".join(f"{label(of)} {in_plural(end) if len(of) > 1 else end}" for of, end in groups)


def _calls(names: Iterable[str]) -> str:
    calls = sorted(f"{name}()" for name in names)
    return ", ".join(calls if len(calls) <= SHOWN_CALLS else [*calls[:SHOWN_CALLS], "..."])


SHOWN_CALLS = 3
"""Maximum number of functions that a sentence names."""
QUIET_SECONDS = 1.5
"""Seconds after which a line explains what a push is waiting for."""
PREPARE_SECONDS = 30.0
"""Seconds that a rank has to prepare the file, which may import a module that is not loaded yet."""


@dataclass(frozen=True)
class Outcome:
    """The result of a push."""

    results: tuple[Pushed, ...]
    """The results of all ranks, with equal results grouped."""
    place: str = ""
    """The function at whose call all ranks were held; "" if they were not."""
    same_step: tuple[tuple[Member, ...], ...] = ()
    """The ranks that are known to have been at the same step then, in groups."""
    halted: str = ""
    """Why ranks were not held, if it is because of a debugger: `rank 0 is waiting for a debugger`."""

    @property
    def is_same_step(self) -> bool:
        """Whether it is known that all ranks were at the same step."""
        return len(self.same_step) == 1

    @property
    def is_same(self) -> bool:
        """Whether all ranks were already executing this code."""
        return all(result.state is State.DONE and result.is_same for result in self.results)

    @property
    def failed(self) -> list[Pushed]:
        """The ranks in which the code was not replaced."""
        return [result for result in self.results if result.state is not State.DONE]


async def push_file(
    tunnels: Tunnels,
    file: str,
    source: str,
    *,
    ranks: str,
    ports: str = "",
    seconds: float,
    waits: bool = True,
    paths: Sequence[str] = (),
) -> Outcome:
    """Replace the code of a file in all chosen ranks.

    Args:
        tunnels: The client's tunnels.
        file: The file on the nodes.
        source: Its new content.
        ranks: A list of ranks, or "all".
        ports: A list of logical ports; "" for all.
        seconds: How long to keep trying to hold all ranks at the same call.
        waits: False to replace the code in each rank immediately.
        paths: Other paths at which the file may be on the nodes; they are tried first.

    Raises:
        NoListener: no chosen rank has a process.
        ConfigurationError: the job does not allow its code to be replaced.
        TimedOut: chosen ranks are not found, or the ranks did not reach the same call in time.
        RelayDebugError: a rank cannot replace the code. In all these cases, nothing was changed.
        CancelledError: the caller was cancelled, and nothing was changed.
        Interrupted: the caller was cancelled too late; the error names the changed ranks.
    """
    name = secrets.token_hex(8)
    push = Push(name, Phase.PREPARE, file, tuple(paths), source, ranks=ranks, ports=ports, seconds=PREPARE_SECONDS)
    push = push.checked()
    await until_found(tunnels, push)
    delivery = _Delivery(tunnels, push, Rounds(seconds))
    try:
        with delivery.explaining(Phase.PREPARE):
            prepared = await delivery.send(push)
        delivery.check(prepared)
        changing = [result for result in prepared if not result.is_same]
        halted = delivery.halted(changing)
        if waits and not halted and changing and all(result.functions for result in changing):
            with delivery.explaining(Phase.HOLD):
                halted = await delivery.align(changing)
    except BaseException:
        await asyncio.shield(delivery.send(replace(push, phase=Phase.ABORT, source="", seconds=2.0)))
        raise
    with delivery.explaining(Phase.COMMIT):
        committed = await delivery.commit()
    if not (rounds := delivery.rounds).is_aligned:
        return Outcome(committed, halted=halted)
    return Outcome(committed, rounds.place, rounds.same_step)


def read_source(path: Path, shown: str = "") -> str:
    """Return the text of a local file.

    Args:
        path: The file.
        shown: What an error calls it; by default, its path.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {shown or path}: {reason}") from None


class _Delivery:
    """Sends one push."""

    def __init__(self, tunnels: Tunnels, push: Push, rounds: Rounds) -> None:
        self.rounds = rounds
        self._tunnels = tunnels
        self._push = push
        self._chosen = _chosen(tunnels.roster, push)
        """The processes at the beginning of the push; a rank that joins later loads the file from its node."""

    async def send(self, push: Push) -> tuple[Pushed, ...]:
        """Return the results of a phase in all ranks, with equal results grouped."""
        found = []
        agents = {agent.id: agent for agent, target in self._chosen if push.selects(target.rank, target.port)}
        nodes = await ask_agents(self._tunnels, push, agents.values())
        if push.phase is Phase.PREPARE:
            check_connected(nodes, f"; {NOTHING_CHANGED}")
        for node in nodes:
            if node.error:
                members = tuple(Member(target.port, target.rank) for _, target in _chosen([node.agent], push))
                text = f"{escape_controls(node.agent.host)}: {node.error}"
                found.append(Pushed(members, error=text, hint=node.hint, is_silent=True))
            found += [reply.result(Pushed, escape_controls) for reply in node.replies.processes]
        return grouped(found)

    async def commit(self) -> tuple[Pushed, ...]:
        """Replace the code in all ranks, and return the results; cancelling does not leave only a part of them."""
        async with TaskSet() as tasks:
            sending = tasks.spawn(
                self.send(replace(self._push, phase=Phase.COMMIT, source="", paths=())), name="commit of a push"
            )
            try:
                return await asyncio.shield(sending)
            except asyncio.CancelledError:
                done = [label(result.members) for result in await sending if result.state is State.DONE]
                where = ", ".join(done) or "no rank"
                raise Interrupted(f"it was too late to stop the push; the code was replaced in {where}") from None

    async def align(self, changing: Iterable[Pushed]) -> str:
        """Bring ranks to the same call, and return ""; or return why no rank has to wait for it, as `halted` does.

        Args:
            changing: The results of the ranks that have something to replace; the others are not held.

        Raises:
            TimedOut: the ranks do not arrive in time, or one cannot be expected to arrive.
            RelayDebugError: a rank has failed.
        """
        loop, rounds, halted = asyncio.get_running_loop(), self.rounds, ""
        ports = sorted(member.port for result in changing for member in result.members)
        push = replace(self._push, ports=format_ranges(ports))
        while not halted and (seconds := rounds.next()) is not None:
            where = replace(push, function=rounds.place, nested=rounds.nested, targets=rounds.targets)
            started = loop.time()
            results = await self.send(replace(where, phase=Phase.HOLD, source="", seconds=seconds, again=rounds.again))
            rounds.received(results, loop.time() - started)
            halted = "" if rounds.is_aligned else self.halted(results)
        if rounds.failed is not None:
            self.check((rounds.failed,))
        if rounds.is_aligned or halted:
            return halted
        longer = "" if rounds.is_stuck else "--timeout to wait, and to hold ranks, longer, or "
        raise TimedOut(
            f"the ranks did not reach the same call{self._late()}; {NOTHING_CHANGED}",
            hint=f"use {longer}--now to replace the code in each rank immediately: a running call reads new constants, "
            "but only another call executes new code",
        )

    def halted(self, results: Iterable[Pushed]) -> str:
        """Return which ranks cannot call a function, because a debugger has stopped them or they wait for one."""
        stopped = {member.port: result.state is State.STOPPED for result in results for member in result.members}
        targets = [target for _, target in _chosen(self._tunnels.roster, self._push) if target.port in stopped]
        return _sentences(
            ((Member(target.port, target.rank),), "is stopped" if view.kind is Kind.RUNNING else view.clause)
            for target, view in zip(targets, map(rank_view, targets), strict=True)
            if stopped[target.port] or view.kind in {Kind.WAITING, Kind.CRASHED}
        )

    @contextlib.contextmanager
    def explaining(self, phase: Phase) -> Iterator[None]:
        """Log what a phase is waiting for, if the block takes long."""

        def explain() -> None:
            late = (self.rounds.left, f"the same call in all ranks{self._late()}")
            others = (PREPARE_SECONDS - QUIET_SECONDS, f"all ranks: {ACTIVITIES[phase]}")
            logger.warning("waiting up to %.0f s more for %s", *(late if phase is Phase.HOLD else others))

        timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, explain)
        try:
            yield
        finally:
            timer.cancel()

    def _late(self) -> str:
        """Return which ranks the last round has not held, and why."""
        texts = []
        for result in self.rounds.late:
            text = f"has not called {_calls(result.functions) or 'an affected function'} in the main thread"
            if inside := [name for name in result.running if name in result.functions]:
                text = f"is still running {inside[0]}()"
            elif result.running and not result.functions:
                text = f"is running {_calls(result.running)}, which no Python loop calls again"
            texts.append((result.members, text))
        return f": {_sentences(texts)}" if texts else ""

    def check(self, results: Sequence[Pushed]) -> None:
        """Raise an error if a process is not ready."""
        if not results:
            raise NoListener("no matching process is registered", hint=LISTING)
        failed = [result for result in results if result.state is State.FAILED]
        others = _choosing_others(self._chosen, {member.port for result in failed for member in result.members})
        for result in sorted(failed, key=lambda result: not result.is_refused):
            where = "" if result.is_refused and len(results) == 1 else f"{self._name(result.members)}: "
            kind, why, hint = RelayDebugError, result.error or "no answer", result.hint
            if result.is_refused:
                kind, why, hint = ConfigurationError, "the job does not allow its code to be replaced", ALLOWING
            halted = f" ({halted})" if (halted := self.halted([result])) else ""
            raise kind(f"{where}{why}{halted}; {NOTHING_CHANGED}", hint=", or ".join(filter(None, (hint, others))))

    def _name(self, members: Sequence[Member]) -> str:
        """Return processes as text; if the push is for several jobs, with their ports and hosts."""
        if _are_of_one_job(self._chosen):
            return label(members)
        ports = {member.port for member in members}
        hosts = {escape_controls(agent.host) for agent, target in self._chosen if target.port in ports}
        ranks = {member.rank for member in members if member.rank is not None}
        return " on ".join(filter(None, (label(members, ranks), ", ".join(sorted(hosts)))))
