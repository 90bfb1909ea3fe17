"""Breakpoints with numbers, as pdb has them, and the grammar of its `break` command.

b                       list all
b 12                    line 12 of the file that is looked at
b train.py:12           also: src/train.py:12, /mnt/code/train.py:12
b train_step            the first line of a function, by any expression that names it
b 12, epoch == 3        with a condition
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from relay_client.pdb.session import Session
from relay_core.dap.messages import Body

__all__ = ["Breakpoint", "Breakpoints", "Wanted", "parse_wanted"]


@dataclass(frozen=True)
class Wanted:
    """What was typed."""

    file: str
    """"" for the file that is looked at."""
    line: int
    """0 if a function is meant."""
    function: str
    condition: str


def parse_wanted(text: str) -> Wanted:
    """Read the argument of `break`."""
    place, _, condition = (part.strip() for part in text.partition(","))
    if match := re.fullmatch(r"(?:(.+):)?\s*(\d+)", place):
        return Wanted((match[1] or "").strip(), int(match[2]), "", condition)
    return Wanted("", 0, place, condition)


@dataclass
class Breakpoint:
    """One breakpoint; `id` is the adapter's, and `trouble` its reason for not taking it."""

    number: int
    path: str
    line: int
    condition: str = ""
    temporary: bool = False
    id: int = -1
    trouble: str = ""

    def __str__(self) -> str:
        kind = "Temporary breakpoint" if self.temporary else "Breakpoint"
        condition = f" if {self.condition}" if self.condition else ""
        trouble = f" (not set: {self.trouble})" if self.trouble else ""
        return f"{kind} {self.number} at {self.path}:{self.line}{condition}{trouble}"

    def as_dap(self) -> Body:
        """Return the SourceBreakpoint."""
        return {"line": self.line, **({"condition": self.condition} if self.condition else {})}

    def take(self, answer: Body) -> None:
        """Learn from the adapter's answer where it was set, if at all."""
        self.id = int(answer.get("id", -1))
        self.line = int(answer.get("line", self.line))
        self.trouble = "" if answer.get("verified") else str(answer.get("message") or "no reason given")


class Breakpoints:
    """All breakpoints of a session."""

    def __init__(self, session: Session) -> None:
        self.all: list[Breakpoint] = []
        self._session = session
        self._count = 0

    def __repr__(self) -> str:
        return f"<Breakpoints {[f'{one.path}:{one.line}' for one in self.all]}>"

    def note(self, path: str, line: int, condition: str = "", *, temporary: bool = False) -> Breakpoint:
        """Number a breakpoint that the adapter does not know yet."""
        self._count += 1
        noted = Breakpoint(self._count, path, line, condition, temporary)
        self.all.append(noted)
        return noted

    def by_path(self) -> dict[str, list[Breakpoint]]:
        """Return what belongs together in one request."""
        paths: dict[str, list[Breakpoint]] = {}
        for one in self.all:
            paths.setdefault(one.path, []).append(one)
        return paths

    async def place(self, path: str, line: int, condition: str = "", *, temporary: bool = False) -> Breakpoint:
        """Set a breakpoint; one that cannot be set says why, and does not stay."""
        found = self.note(path, line, condition, temporary=temporary)
        await self._send(path)
        if found.trouble:
            self.all.remove(found)
        return found

    async def clear(self, numbers: set[int]) -> list[Breakpoint]:
        """Remove breakpoints by number."""
        gone = [one for one in self.all if one.number in numbers]
        self.all = [one for one in self.all if one.number not in numbers]
        for path in {one.path for one in gone}:
            await self._send(path)
        return gone

    async def clear_hit(self, ids: list[int]) -> None:
        """Remove the temporary ones among those that have been hit, by the adapter's ids."""
        await self.clear({one.number for one in self.all if one.temporary and one.id in ids})

    async def run_until(self, path: str, lines: range) -> None:
        """Let the job run to one of these lines of the frame's function, or until the function returns."""
        there = [one for one in self.all if one.path == path]
        extra = [{"line": line} for line in lines]
        source = {"path": path}
        await self._session.request(
            "setBreakpoints", source=source, breakpoints=[*(one.as_dap() for one in there), *extra]
        )
        try:
            await self._session.resume("stepOut")
        finally:
            if not self._session.over:
                await self._send(path)

    async def _send(self, path: str) -> None:
        here = [one for one in self.all if one.path == path]
        body = await self._session.request(
            "setBreakpoints", source={"path": path}, breakpoints=[one.as_dap() for one in here]
        )
        for one, answer in zip(here, body.get("breakpoints", []), strict=False):
            one.take(answer)
