"""The verb `push`: replaces the code of running ranks with a file on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from relay_client.verbs.verb import Answer, Command, Verb

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels


def _read(file: str) -> None:
    """Raise UsageError if a file cannot be read."""
    from pathlib import Path

    from relay_client.push.deliver import read_source

    read_source(Path(file))


@dataclass(frozen=True)
class Push(Verb):
    """Replace the code of running ranks with the code in a file on this machine."""

    name = "push"
    changes_job = True
    cancelled = "the push was cancelled; nothing was changed in any rank"
    command = Command(
        "replace the code of running ranks with a local file",
        "Compiles a local Python file in all ranks. If this succeeds in every rank, replaces the code of "
        "the file's functions and methods, at the same step in all ranks; variables keep their values. Prints what "
        "cannot be replaced. The job must have been started with --debug-allow-edit; files on its nodes are not "
        "changed.",
        {
            "file": "a Python file on this machine",
            "seconds": "how long to wait until all ranks are at the same step (default: 60s)",
            "now": "replace the code in each rank immediately, without waiting until all ranks are at the same step",
        },
    )
    checks: ClassVar[Mapping[str, Callable[[str], object]]] = {**Verb.checks, "file": _read}
    file: str
    """Absolute path on this machine."""
    remote: str
    """The file on the nodes, unless it has one of `paths` there: absolute, or relative to the job's start
    directory."""
    ranks: str = "all"
    """A list of global ranks, or `all`."""
    ports: str = ""
    """Logical ports, to choose one of several jobs; "" for all."""
    seconds: float = 60.0
    """Seconds to wait until all ranks are at the same step."""
    now: bool = False
    """Whether to replace the code in each rank immediately, without waiting until all ranks are at the same step."""
    paths: tuple[str, ...] | None = None
    """Paths that are tried before `remote`; by default, `file` and its real path."""
    shown: str = ""
    """What texts call the file; by default, its name."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Send the file to all agents, and replace the code once all ranks are ready.

        Raises:
            UsageError: the file cannot be read.
            RelayDebugError: nothing was changed in any rank.
        """
        import asyncio
        from pathlib import Path

        from relay_client.push.deliver import absolute_paths, push_file, read_source
        from relay_client.push.render import as_object, show_outcome

        path = Path(self.file)
        outcome = await push_file(
            tunnels,
            self.remote,
            await asyncio.to_thread(read_source, path, self.shown),
            ranks=self.ranks,
            ports=self.ports,
            seconds=self.seconds,
            waits=not self.now,
            paths=absolute_paths(path) if self.paths is None else self.paths,
        )
        text, data = show_outcome(self.shown or path.name, outcome), as_object(outcome)
        if not outcome.failed:
            return Answer(text, data)
        return Answer(text, data, 1, error="the code was not replaced in every rank", hint="push the file again")
