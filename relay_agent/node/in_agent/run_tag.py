"""A node's tag on the MLflow run: while a process waits for a debugger, it contains the command for attaching.

A process that is held at an exception waits for a debugger, too. In Azure ML, the tags are shown on the run's page in
the studio. Separate processes (`set_tag`) write a tag, one at a time and only the latest text, and delete it at the
end; neither the job nor the agent waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from relay_agent.monitor.mlflow_metrics import find_run
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.compat import TIMEOUT_ERRORS
from relay_core.net.tasks import output_of
from relay_core.value_parsers import format_ranges

KEY = "relay_debug_attach"
MAX_PORTS_TEXT = 200
"""Maximum number of characters in a list of ports; if the list is longer, the command lists the targets instead."""
COALESCE = 0.5
"""Seconds between a change and its write, so that one write covers all ranks of the node that begin to wait at the same
time."""
WRITE_TIMEOUT = 60.0
"""Timeout in seconds for one write; at the timeout, MLflow's own retries are stopped."""

logger = logging.getLogger(__name__)


class RunTag:
    """The tag of one run.

    Args:
        run: The id of the run.
        hc: The name of the hybrid connection, for the command.
    """

    def __init__(self, run: str, hc: str) -> None:
        self._run = run
        self._hc = hc
        self._key = KEY
        self._wanted = ""
        self._written = ""
        """The text that was last sent, even if the server did not accept it."""
        self._may_exist = False
        """Whether the server may have the tag; so until its deletion has ended."""
        self._changed = asyncio.Event()
        self._failed = False

    @classmethod
    def of_job(cls, environ: Mapping[str, str], hc: str) -> RunTag | None:
        """Return the tag of the job's run; None without a tracking server, a run, or MLflow."""
        run = find_run(environ)
        return None if run is None else cls(run, hc)

    def update(self, targets: Iterable[TargetInfo], node_rank: int | None = None) -> None:
        """Set the targets of this node; the tag names those that are waiting for a debugger.

        Each node has its own tag, because tags cannot be changed atomically.
        """
        ports = sorted(each.port for each in targets if each.state in {State.WAITING, State.CRASHED})
        self._key = f"{KEY}_node{node_rank}" if node_rank else KEY
        self._wanted = self._command(format_ranges(ports)) if ports else ""
        if self._wanted != self._written:
            self._changed.set()

    def _command(self, ports: str) -> str:
        if len(ports) > MAX_PORTS_TEXT:
            return f"relay-client --hc {self._hc} targets"
        return f"relay-client --hc {self._hc} --ports {ports}"

    async def run(self) -> NoReturn:
        """Write each change until cancelled, and then start the deletion of a tag that is still set."""
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(COALESCE)
                self._changed.clear()
                if self._wanted != self._written:
                    self._written = self._wanted
                    self._may_exist |= bool(self._written)
                    await self._write(self._written)
                    self._may_exist = bool(self._written)
        finally:
            if self._may_exist:
                self._delete()

    async def _write(self, text: str) -> None:
        try:
            status, output, _ = await output_of(*self._arguments(text), within=WRITE_TIMEOUT)
        except TIMEOUT_ERRORS:
            status, output = None, b"TimeoutError"
        if status != 0 and not self._failed:
            self._failed = True
            logger.warning(
                "cannot set the tag '%s' on the run: %s", self._key, output.decode(errors="replace").strip()[:80]
            )

    def _delete(self) -> None:
        """Start the deletion; the agent exits before the deletion is complete."""
        silent = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
        with contextlib.suppress(OSError):
            os.posix_spawn(sys.executable, self._arguments(""), os.environ, file_actions=silent)

    def _arguments(self, text: str) -> list[str]:
        command = [sys.executable, "-m", "relay_agent.node.in_agent.set_tag", self._run, self._key]
        return [*command, text] if text else command
