"""A process that has imported torch, which forks the ranks of jobs: see `forked_ranks`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from relay_core.compat import timeout
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.fork_server import fork_server
from tests.support.machine.programs import environment

_addresses: list[str] = []
"""Where the process of this test run listens."""


@contextlib.contextmanager
def loaded_torch(folder: Path) -> Iterator[None]:
    """Have `start_node` use a process that has imported torch, and end it at the end of the block."""
    script = Path(__file__).with_name("forked_ranks.py")
    with fork_server(folder, sys.executable, script, environment(OMP_NUM_THREADS="1")) as address:
        _addresses.append(address)
        try:
            yield
        finally:
            _addresses.remove(address)


class Node:
    """The process of a node that has forked its ranks, with what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reader = reader
        self._writer = writer

    async def wait(self) -> int:
        """Return its exit status once it has ended; without one it was killed."""
        if self.returncode is None:
            line = await self._reader.readline()
            await _close(self._writer)
            self.returncode = int(line) if line else -signal.SIGKILL
        return self.returncode


async def start_node(
    first: int, ranks: int, arguments: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str]
) -> Node:
    """Start a script and its arguments as the ranks of a node, which append their output to `log`.

    Args:
        first: The node's first rank.
        ranks: How many.
        arguments: The script and its arguments.
        cwd: Current directory of the ranks.
        log: Of their output.
        env: Their environment, without the variables that name the rank.
    """
    async with timeout(DEADLINE):
        reader, writer = await asyncio.open_unix_connection(_addresses[-1])
        try:
            node = {"first": first, "ranks": ranks, "argv": [*arguments], "env": {**env}}
            writer.write(json.dumps({**node, "cwd": str(cwd), "log": str(log)}).encode() + b"\n")
            return Node(int(await reader.readline()), reader, writer)
        except BaseException:
            await _close(writer)
            raise


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
