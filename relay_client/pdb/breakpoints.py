"""Numbered breakpoints, as in pdb, and the grammar of its `break` command.

b                       list all
b 12                    line 12 of the file of the selected frame
b train.py:12           line 12 of a file; also src/train.py:12 or /mnt/code/train.py:12
b train_step            the first line of a function; any expression that evaluates to the function
b 12, epoch == 3        with a condition
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relay_client.dap import readable
from relay_client.pdb.session import Session
from relay_core.dap.messages import Body
from relay_core.errors import RelayDebugError, UsageError
from relay_core.foreign import escape_controls
from relay_core.grouping import by_key


@dataclass(frozen=True)
class BreakpointSpec:
    """Location and condition of a breakpoint, as typed."""

    file: str
    """"" for the file of the selected frame."""
    line: int
    """0 if `function` is the location."""
    function: str
    condition: str


def parse_spec(text: str) -> BreakpointSpec:
    """Parse the argument of `break`."""
    location, _, condition = (part.strip() for part in text.partition(","))
    if match := re.fullmatch(r"(?:(.+):)?\s*(\d+)", location):
        return BreakpointSpec((match[1] or "").strip(), int(match[2]), "", condition)
    return BreakpointSpec("", 0, location, condition)


def parse_initial(text: str) -> BreakpointSpec:
    """Parse a breakpoint of the command line, given before a frame is selected.

    Raises:
        UsageError: the file or the line is missing.
    """
    spec = parse_spec(text)
    if not spec.line or not spec.file:
        raise UsageError(f"invalid breakpoint: '{text}'", hint=f"write it as -b train.py:{spec.line or 12}")
    return spec


@dataclass
class Breakpoint:
    """One breakpoint; `id` is the adapter's id, `problem` the adapter's reason for not setting it, or ""."""

    number: int
    path: str
    line: int
    condition: str = ""
    temporary: bool = False
    id: int = -1
    problem: str = ""
    typed_line: int = 0
    """The line that has no code, if the adapter has moved the breakpoint; otherwise 0."""

    def __str__(self) -> str:
        kind = "Temporary breakpoint" if self.temporary else "Breakpoint"
        condition = f" if {self.condition}" if self.condition else ""
        moved = f" (line {self.typed_line} has no code)" if self.typed_line else ""
        return escape_controls(f"{kind} {self.number} at {self.path}:{self.line}{condition}{moved}")

    @property
    def warning(self) -> str:
        """Why its condition may be invalid in the job, whose Python may be another version; "" if it is valid here."""
        try:
            ast.parse(self.condition or "True", mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            return f"the condition may be invalid: {getattr(error, 'msg', error)}"
        return ""

    def as_dap(self) -> Body:
        """Return the breakpoint as DAP's SourceBreakpoint."""
        return {"line": self.line, **({"condition": self.condition} if self.condition else {})}

    def update(self, result: Body) -> None:
        """Take id, line and problem from the adapter's Breakpoint."""
        self.id = int(result.get("id", -1))
        if (line := int(result.get("line", self.line))) != self.line:
            self.typed_line, self.line = self.typed_line or self.line, line
        self.problem = "" if result.get("verified") else str(result.get("message") or "no reason given")


class NotSet(RelayDebugError):
    """The adapter has not set a breakpoint."""


class Breakpoints:
    """All breakpoints of a session."""

    def __init__(self, session: Session) -> None:
        self.all: list[Breakpoint] = []
        self._session = session
        self._count = 0

    def add(self, path: str, line: int, condition: str = "", *, temporary: bool = False) -> Breakpoint:
        """Add and number a breakpoint without sending it to the adapter."""
        self._count += 1
        added = Breakpoint(self._count, path, line, condition, temporary)
        self.all.append(added)
        return added

    def by_path(self) -> dict[str, list[Breakpoint]]:
        """Return the breakpoints by file, because DAP sets all breakpoints in a file with one request."""
        return by_key((one.path, one) for one in self.all)

    async def set(self, path: str, line: int, condition: str = "", *, temporary: bool = False) -> Breakpoint:
        """Set a breakpoint, and return it; raise as `check`."""
        added = self.add(path, line, condition, temporary=temporary)
        await self._send(path)
        await self.check(added)
        return added

    async def check(self, one: Breakpoint) -> None:
        """Remove a breakpoint that the adapter has not set, which the job would later report as not hit.

        Raises:
            NotSet: the adapter has not set it.
        """
        if one.problem:
            await self.clear({one.number})
            self._count -= one.number == self._count
            raise NotSet(f"no breakpoint set at {one.path}:{one.line}: {one.problem.rstrip('.')}")

    async def clear(self, numbers: Collection[int]) -> list[Breakpoint]:
        """Remove breakpoints by number, and return them."""
        removed = [one for one in self.all if one.number in numbers]
        self.all = [one for one in self.all if one.number not in numbers]
        for path in {one.path for one in removed}:
            await self._send(path)
        return removed

    async def clear_hit(self, ids: Collection[int], places: Collection[tuple[str, int]]) -> None:
        """Remove the temporary breakpoints among those with these ids of the adapter, and those at these lines."""
        hit = (one for one in self.all if one.id in ids or (one.path, one.line) in places)
        await self.clear({one.number for one in hit if one.temporary})

    async def run_until(self, path: str, lines: range) -> None:
        """Resume until one of these lines in the selected frame's function is reached or the function returns."""
        try:
            await self._send(path, [{"line": line} for line in lines])
            await self._session.resume("stepOut")
        finally:
            if not self._session.end_reason:
                await self._send(path)

    async def _send(self, path: str, more: Sequence[Body] = ()) -> None:
        """Set the breakpoints in one file, and more that are not in the table; update those that are."""
        own = [one for one in self.all if one.path == path]
        body = await self._session.request(
            "setBreakpoints", source={"path": path}, breakpoints=[*(one.as_dap() for one in own), *more]
        )
        with readable():
            for one, result in zip(own, body.get("breakpoints", []), strict=False):
                one.update(result)
