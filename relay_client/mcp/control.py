"""What a coding agent can control if the user permits it: breakpoints, continuing and stepping, in debug sessions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from relay_client.agents.roster import Claim, Destination, absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.agents.wait_for_ending import how_process_ended
from relay_client.dap import DapClient, DebugSession, HowEnded, function_of, readable
from relay_client.mcp.reading import ControlRefused, Items, chosen_ranks
from relay_client.ui.text import format_ranks, since_text
from relay_core.errors import NoListener, RelayDebugError
from relay_core.foreign import escape_controls, printable

Step = Literal["over", "into", "out"]
COMMANDS = {"over": "next", "into": "stepIn", "out": "stepOut"}
WAIT_HINT = "call wait_for_stop"


class _Session(DebugSession):
    """A debug session with one rank."""

    subject = "the rank"

    def __init__(self, rank: int, client: DapClient, how_ended: HowEnded | None = None) -> None:
        super().__init__(client, how_ended)
        self.rank = rank

    async def where(self) -> dict[str, Any]:
        """Return where the rank is."""
        if not self.is_stopped:
            return {"rank": self.rank, "stopped": False, "reason": escape_controls(self.end_reason)}
        found: dict[str, Any] = {"rank": self.rank, "stopped": True, "reason": printable(self.reason.get("reason"))}
        try:
            body = await self.request("stackTrace", threadId=self.stopped_thread, levels=1)
            with readable():
                for frame in body.get("stackFrames", []):
                    path, function = (frame.get("source") or {}).get("path", ""), function_of(frame)
                    place = {"file": escape_controls(path), "function": escape_controls(function)}
                    found |= {"line": int(frame["line"]), **place}
        except RelayDebugError as error:
            found["error"] = escape_controls(error.sentence)
        return found


_SHOWN: Mapping[str, Callable[[Any], Any]] = {"verified": bool, "line": int, "message": printable}
"""The fields of a Breakpoint that a coding agent receives."""


def _breakpoint(line: int, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a coding agent receives about a breakpoint; a debugger gives no reason if it moves one."""
    with readable():
        found = {name: read(result[name]) for name, read in _SHOWN.items() if result.get(name) is not None}
    if found.get("verified") and found.get("line", line) != line:
        found.setdefault("message", f"line {line} is not executable: moved to line {found['line']}")
    return found


async def _resume(sessions: list[_Session], command: str) -> tuple[list[_Session], Items]:
    """Resume ranks; return the sessions of those that are running, and an item with the error for each other one.

    Raises:
        ControlRefused: a rank is not stopped; none was resumed.
        RelayDebugError: no rank was resumed.
    """
    for each in sessions:
        if not each.is_stopped:
            why = each.end_reason or "it is running"
            raise ControlRefused(f"rank {each.rank} is not stopped: {why}", hint=WAIT_HINT)
    outcomes = await asyncio.gather(*(session.move(command) for session in sessions), return_exceptions=True)
    resumed, failed = list[_Session](), list[dict[str, Any]]()
    for session, error in zip(sessions, outcomes, strict=True):
        if error is None:
            resumed.append(session)
        elif isinstance(error, RelayDebugError) and None in outcomes:
            failed.append(
                {"rank": session.rank, "stopped": session.is_stopped, "error": escape_controls(error.sentence)}
            )
        else:
            raise error
    return resumed, failed


async def _end(session: _Session) -> None:
    """Disconnect without terminating the process; if that fails, closing the connection has the same effect."""
    async with session.client, session:
        with contextlib.suppress(RelayDebugError):
            await session.detach()


class Control:
    """The debug sessions of this server; an async context manager that detaches from all ranks on exit.

    Args:
        tunnels: The client's tunnels, already entered.
    """

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._sessions: dict[int, _Session] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Control:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.detach("all")

    async def set_breakpoints(self, file: str, lines: list[int], condition: str, ranks: str) -> Items:
        """Replace the breakpoints in a file, and attach to those ranks that have no debug session yet."""
        wanted = [{"line": line, **({"condition": condition} if condition else {})} for line in lines]
        async with self._lock:
            claims = self._claims(ranks)
            for claim in claims:
                self._require_free(claim)
            return list(await asyncio.gather(*(self._set_in(claim, file, wanted) for claim in claims)))

    async def resume(self, ranks: str) -> Items:
        """Continue the chosen ranks."""
        async with self._lock:
            resumed, failed = await _resume(self._chosen(ranks), "continue")
            return [*({"rank": session.rank, "stopped": False} for session in resumed), *failed]

    async def step(self, kind: Step, ranks: str, seconds: float) -> Items:
        """Step the chosen ranks together, and return where they are once all have stopped or the time has expired."""
        async with self._lock:
            resumed, failed = await _resume(self._chosen(ranks), COMMANDS[kind])
            await asyncio.gather(*(session.wait(seconds) for session in resumed))
            return [*await asyncio.gather(*(session.where() for session in resumed)), *failed]

    async def detach(self, ranks: str) -> Items:
        """Detach; the ranks continue without breakpoints."""
        async with self._lock:
            chosen = chosen_ranks(ranks)
            ended = [rank for rank in sorted(self._sessions) if chosen is None or rank in chosen]
            await asyncio.gather(*(_end(self._sessions.pop(rank)) for rank in ended))
            return [{"rank": rank, "detached": True} for rank in ended]

    def _claims(self, ranks: str) -> list[Claim]:
        chosen = chosen_ranks(ranks)
        found = [claim for claim in self._tunnels.reachable_targets() if claim.target.rank is not None]
        claims = [claim for claim in found if chosen is None or claim.target.rank in chosen]
        wanted = {one.rank for one in absent_ranks(self._tunnels.roster, chosen) if chosen or not one.has_ended}
        wanted |= {target.rank for agent in self._tunnels.roster for target in agent.targets if target.rank is not None}
        missing = wanted.intersection(chosen or wanted).difference(claim.target.rank for claim in claims)
        if missing or not claims:
            who = format_ranks(missing) if missing else f"ranks {ranks}"
            raise NoListener(f"no process has {who}", hint="choose from the ranks that the 'ranks' tool lists")
        return claims

    def _require_free(self, claim: Claim) -> None:
        """Check that no editor is debugging a rank.

        Raises:
            ControlRefused: an editor is debugging the rank; the sentence names its user.
        """
        holder = claim.target.attachment
        if claim.target.rank in self._sessions or holder is None:
            return
        raise ControlRefused(
            f"{claim.target.label} is being debugged by {holder.who}{since_text(holder.since)}",
            hint="use the read-only tools, which still work, or ask that user to detach",
        )

    async def _set_in(self, claim: Claim, file: str, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        rank = claim.target.rank
        assert rank is not None  # noqa: S101 - _claims returns only targets with a rank
        session = self._sessions.get(rank)
        if session is not None and session.is_over:
            await _end(self._sessions.pop(rank))
            session = None
        if session is not None:
            results = await session.client.set_breakpoints(file, wanted)
        else:
            client = DapClient(await self._tunnels.open(Destination(claim.target.port)))
            process = claim.agent.id, claim.target.port, claim.target.pid
            session = _Session(rank, client, functools.partial(how_process_ended, self._tunnels, process))
            try:
                results = (await session.attach({file: wanted}))[file]
            except BaseException:
                await client.close()
                raise
            self._sessions[rank] = session
        shown = [_breakpoint(each["line"], result) for each, result in zip(wanted, results, strict=False)]
        return {"rank": rank, "breakpoints": shown}

    def _chosen(self, ranks: str) -> list[_Session]:
        """Return the sessions of the chosen ranks; for "all", the sessions of the ranks that are stopped."""
        if (chosen := chosen_ranks(ranks)) is None:
            found = [session for session in self._sessions.values() if session.is_stopped]
            if not found:
                raise ControlRefused("none of the ranks that this server is debugging is stopped", hint=WAIT_HINT)
            return found
        for claim in self._claims(ranks):
            self._require_free(claim)
            if claim.target.rank not in self._sessions:
                raise ControlRefused(
                    f"this server is not debugging {claim.target.label}", hint="call set_breakpoints to attach to it"
                )
        return [self._sessions[rank] for rank in sorted(chosen)]
