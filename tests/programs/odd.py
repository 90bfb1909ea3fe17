"""One odd program, and what is known about it under relay-debug."""

import dataclasses
import sys
import textwrap
from collections.abc import Mapping
from importlib.util import find_spec

__all__ = ["API", "EDITOR", "FORKING", "RUN", "WAYS", "Odd", "differing"]

RUN = "run"
"""Under `relay-agent run`, without an editor."""
API = "API"
"""With a call of `start_remote_debugging` in its first line, without an editor."""
EDITOR = "editor"
"""Under `relay-agent run`, with an editor that stops at the line marked with `STOP_MARK` and continues."""
WAYS = (RUN, API, EDITOR)
STOP_MARK = "# stop"
FIRST_LINE = "pass"
"""Stands where the call of the API stands, so that tracebacks show the same lines."""


@dataclasses.dataclass(frozen=True)
class Odd:
    """One odd program."""

    name: str
    """Its name in the table; part of the name of its test."""
    oddity: str
    """What it does that others do not, as shown in the table."""
    code: str
    """The script; the line at which an editor stops ends with `STOP_MARK`."""
    options: tuple[str, ...] = ()
    """Of the interpreter."""
    stdin: bytes = b""
    needs: str = ""
    """A package without which it cannot run."""
    since: tuple[int, int] = (3, 10)
    """The first Python version on which it can run."""
    differs: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    """For each way, what may differ from a plain run: "status", "stdout", "stderr", "files", or "not stopped"."""
    limit: str = ""
    """What does not work, and the line that reports it; "" if nothing differs."""
    line: str = ""
    """A part of the line that reports the difference, on stderr or in the editor; "" if no line does."""
    reported_in: frozenset[str] = frozenset()
    """The ways in which `line` appears."""
    has_own_agent: bool = False
    """Whether it must start the node's agent itself, because starting it is what may interfere."""
    is_sensitive: bool = False
    """Whether `make test` runs it in all ways, and not only under `RUN`."""
    is_zipapp: bool = False
    """Whether it runs as an archive made by `zipapp`."""

    @property
    def missing(self) -> str:
        """Why it cannot run here, or ""."""
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if sys.version_info < self.since:
            return "needs Python {}.{}".format(*self.since)
        return ""

    def source(self, first_line: str = FIRST_LINE) -> str:
        """Return the script with its first line."""
        return f"{first_line}\n{textwrap.dedent(self.code).lstrip()}"

    @property
    def stop_line(self) -> int | None:
        """The line at which an editor stops; None if there is none."""
        lines = enumerate(self.source().splitlines(), 1)
        return next((number for number, line in lines if line.endswith(STOP_MARK)), None)


def differing(**ways: str) -> dict[str, frozenset[str]]:
    """Return `Odd.differs` from words: `differing(editor="stdout stderr")`."""
    return {way: frozenset(what.replace("not_stopped", "not stopped").split(",")) for way, what in ways.items()}


FORKING = {
    "differs": differing(run="stderr", API="stderr", editor="stderr"),
    "limit": "On Python 3.12 and later, Python warns of the thread of relay-agent when `__main__` forks.",
    "line": "is multi-threaded, use of fork() may lead to deadlocks in the child",
    "reported_in": frozenset({RUN}),
}
"""What is known about a program that forks in `__main__`."""
