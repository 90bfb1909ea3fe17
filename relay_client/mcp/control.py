"""What a coding agent can control if the user permits it: breakpoints, continuing and stepping, in debug sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from relay_client.agents.roster import Claim, Destination, absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient, RequestFailed, function_of
from relay_client.mcp.reading import ControlRefused, Items, chosen_ranks
from relay_client.ui.text import clock, format_ranks
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import NoListener, RelayDebugError
from relay_core.net.tasks import TaskSet

Step = Literal["over", "into", "out"]
COMMANDS = {"over": "next", "into": "stepIn", "out": "stepOut"}
ATTACH_TIMEOUT = 60.0
"""Seconds to wait for each response while attaching; the job first imports debugpy."""
DETACH_TIMEOUT = 5.0
WAIT_HINT = "call wait_for_stop"


class _Session:
    """A debug session with one rank, and where it has stopped."""

    def __init__(self, rank: int, client: DapClient) -> None:
        self.rank = rank
        self.client = client
        self.thread: int | None = None
        """The thread that has stopped; None while the rank is running."""
        self.reason = ""
        self.lost = ""
        self.changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<_Session rank {self.rank} {'running' if self.thread is None else 'stopped'}>"

    async def receive_events(self) -> None:
        """Follow the session until it ends."""
        try:
            while True:
                event = await self.client.wait_for_event("stopped", "terminated", "exited", within=None)
                body = event.get("body") or {}
                if event["event"] == "stopped":
                    self.thread, self.reason = int(body.get("threadId") or 0), str(body.get("reason", ""))
                else:
                    self.lost = "the rank has ended"
                self.changed.set()
        except RelayDebugError as error:
            self.lost = error.sentence
            self.changed.set()

    async def resume(self, command: str) -> None:
        """Send a request that resumes the rank, which is stopped."""
        thread, self.thread = self.thread, None
        self.changed.clear()
        try:
            await self.client.request(command, {"threadId": thread})
        except RequestFailed as error:
            if error.reason:  # the debugger has refused: the rank is still stopped
                self.thread = thread
            raise

    async def where(self) -> dict[str, Any]:
        """Return where the rank is."""
        found: dict[str, Any] = {"rank": self.rank, "stopped": self.thread is not None, "reason": self.reason}
        if self.thread is None:
            return {**found, "reason": self.lost}
        arguments = {"threadId": self.thread, "levels": 1}
        for frame in (await self.client.request("stackTrace", arguments)).get("stackFrames", []):
            path = (frame.get("source") or {}).get("path", "")
            found |= {"file": path, "line": frame["line"], "function": function_of(frame)}
        return found


def _breakpoint(line: int, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a coding agent receives about a breakpoint; a debugger gives no reason if it moves one."""
    found = {name: result[name] for name in ("verified", "line", "message") if name in result}
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
        if each.lost or each.thread is None:
            raise ControlRefused(f"rank {each.rank} is not stopped: {each.lost or 'it is running'}", hint=WAIT_HINT)
    outcomes = await asyncio.gather(*(session.resume(command) for session in sessions), return_exceptions=True)
    resumed, failed = list[_Session](), list[dict[str, Any]]()
    for session, error in zip(sessions, outcomes, strict=True):
        if error is None:
            resumed.append(session)
        elif isinstance(error, RelayDebugError) and None in outcomes:
            failed.append({"rank": session.rank, "stopped": session.thread is not None, "error": error.sentence})
        else:
            raise error
    return resumed, failed


class Control:
    """The debug sessions of this server; an async context manager that detaches from all ranks on exit.

    Args:
        tunnels: The client's tunnels, already entered.
    """

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._sessions: dict[int, _Session] = {}
        self._tasks = TaskSet()
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Control ranks={sorted(self._sessions)}>"

    async def __aenter__(self) -> Control:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.detach("all")
        await self._tasks.cancel_all()

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
            try:
                async with timeout(seconds):
                    await asyncio.gather(*(session.changed.wait() for session in resumed))
            except TIMEOUT_ERRORS:
                pass  # those that have not arrived are reported as running
            return [*await asyncio.gather(*(session.where() for session in resumed)), *failed]

    async def detach(self, ranks: str) -> Items:
        """Detach; the ranks continue without breakpoints."""
        async with self._lock:
            chosen = chosen_ranks(ranks)
            ended = [rank for rank in sorted(self._sessions) if chosen is None or rank in chosen]
            await asyncio.gather(*(self._end(self._sessions.pop(rank)) for rank in ended))
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
        since = "" if holder.since is None else f" (since {clock(holder.since)})"
        raise ControlRefused(
            f"{claim.target.label} is being debugged by {holder.who}{since}",
            hint="use the read-only tools, which still work, or ask that user to detach",
        )

    async def _set_in(self, claim: Claim, file: str, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        rank = claim.target.rank
        assert rank is not None  # noqa: S101 - _claims returns only targets with a rank
        session = self._sessions.get(rank)
        if session is not None and session.lost:
            await self._end(self._sessions.pop(rank))
            session = None
        if session is not None:
            results = await session.client.set_breakpoints(file, wanted)
        else:
            client = DapClient(await self._tunnels.open(Destination(claim.target.port)))
            try:
                found = await client.attach(
                    {file: wanted}, exceptions=["uncaught"], justMyCode=False, within=ATTACH_TIMEOUT
                )
            except BaseException:
                await client.close()
                raise
            results = found[file]
            session = self._sessions[rank] = _Session(rank, client)
            self._tasks.spawn(session.receive_events(), name=f"debug session of rank {rank}")
        shown = [_breakpoint(each["line"], result) for each, result in zip(wanted, results, strict=False)]
        return {"rank": rank, "breakpoints": shown}

    def _chosen(self, ranks: str) -> list[_Session]:
        """Return the sessions of the chosen ranks; for "all", the sessions of the ranks that are stopped."""
        if (chosen := chosen_ranks(ranks)) is None:
            found = [session for session in self._sessions.values() if session.thread is not None]
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

    async def _end(self, session: _Session) -> None:
        """Disconnect without terminating the process; if that fails, closing the connection has the same effect."""
        try:
            await session.client.request("disconnect", {"terminateDebuggee": False}, within=DETACH_TIMEOUT)
        except RelayDebugError:
            pass
        finally:
            await session.client.close()
