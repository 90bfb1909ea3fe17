"""A job of several ranks on one node, each a real process under `relay-agent run`."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.support.jobs.running import running_job
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay


class Ranks:
    """The processes of a job, all on one node.

    Args:
        relay: To listen on.
        script: What each rank runs.
        world: Number of ranks.
        options: Of `relay-agent run`.
    """

    def __init__(self, relay: LocalRelay, script: Path, world: int, *options: str) -> None:
        self.script = script
        self.jobs: dict[int, Program] = {}
        self._relay = relay
        self._world = world
        self._options = options
        self.ports = consecutive_ports(world)
        self.first_port = self.ports[0]
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Ranks:
        try:
            for rank in range(self._world):
                await self.start(rank)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        for rank in self.jobs:  # before waiting for any: the agent has the stderr of the one that started it
            self.kill(rank)
        await self._stack.aclose()

    async def start(self, rank: int) -> Program:
        """Start the process of a rank, or start it again."""
        options = ["--port", str(self.first_port), "--debug-ranks", "none", *self._options]
        variables = {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": str(self._world)}
        job = await self._stack.enter_async_context(
            running_job(self._relay, self.script, *options, cwd=self.script.parent, **variables)
        )
        if not self.jobs:  # the others find its agent
            await job.line("listening on")
        self.jobs[rank] = job
        return job

    def kill(self, rank: int) -> None:
        """Kill the process of a rank."""
        with contextlib.suppress(ProcessLookupError):
            self.jobs[rank].process.kill()


def line_of(source: str, code: str) -> int:
    """Return the number of the line that holds `code`."""
    return next(number for number, line in enumerate(source.splitlines(), start=1) if code in line)
