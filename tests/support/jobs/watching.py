"""Asks the watches of a process as a client does; for every Python version, without other packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from relay_agent.trigger.table import Job, Watches
from relay_core.agent_api.watch import Watch, Watched

PORT = 5678
SECOND = 0.2
"""Seconds to wait for hits that must not come."""


def line_of(path: Path, mark: str) -> int:
    """Return the number of the first line that ends with a comment with this text."""
    lines = path.read_text().splitlines()
    return 1 + next(index for index, line in enumerate(lines) if line.endswith(f"# {mark}"))


class Client:
    """A client that acknowledges what it receives.

    Args:
        path: The file with the marked lines.
        table: The watches.
    """

    def __init__(self, path: Path, table: Watches | None = None) -> None:
        self.table = table or Watches()
        self.logged: list[str] = []
        self.on_hold: Callable[[FrameType], object] = lambda _frame: None
        self.on_answer: Callable[[Watched], object] = lambda _answer: None
        self._path = path
        self._after: dict[str, dict[str, int]] = {}

    def ask(self, mark: str, expression: str = "", *, id: str = "", **fields: Any) -> Watched:  # noqa: A002
        """Ask about a marked line; the first question installs the watch."""
        id = id or mark  # noqa: A001
        after = self._after.get(id, {})
        asked = {"wait": SECOND, "user": "alice", "file": str(self._path), "after": after} | fields
        found: list[Watched] = []
        if "line" not in asked:
            asked["line"] = line_of(self._path, mark)
        question = Watch(id=id, expression=expression, **asked)

        def respond(answer: Watched) -> None:
            found.append(answer)
            self.on_answer(answer)

        self.table.answer(question, PORT, Job(self.logged.append, self._hold), respond)
        hits = found[0].hits
        self._after[id] = {str(PORT): hits[-1].number if hits else after.get(str(PORT), 0)}
        return found[0]

    def _hold(self, frame: FrameType) -> None:
        self.on_hold(frame)

    def texts(self, mark: str, expression: str = "", **fields: Any) -> list[str]:
        """Ask once more, and return the values or errors that were reported."""
        return [hit.text or hit.error for hit in self.ask(mark, expression, **fields).hits]
