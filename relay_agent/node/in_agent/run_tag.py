"""A tag of the MLflow run: while a process waits for a debugger, it contains the command to attach.

In Azure ML, the tag is shown on the run's page in the studio. It is written by another process (`set_tag`), one at a
time, and only the latest text; neither the job nor the agent waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.ranges import format_ranges

__all__ = ["RunTag"]

KEY = "relay_debug_attach"
MAX_PORTS_TEXT = 200
"""Characters of a list of ports; for a longer one, the command lists the targets instead."""
COALESCE = 0.5
"""Seconds in which the ranks of a node begin to wait, so that one write has all of them."""
WRITE_TIMEOUT = 60.0
"""Seconds for one write, after which MLflow's own retries are ended."""

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
        """The text that was sent last, even if the server did not accept it."""
        self._changed = asyncio.Event()
        self._failed = False

    def __repr__(self) -> str:
        return f"<RunTag {self._run} {self._wanted!r}>"

    @classmethod
    def of_job(cls, environ: Mapping[str, str], hc: str) -> RunTag | None:
        """Return the tag of the job's run; None without a tracking server, a run, or MLflow."""
        run = environ.get("MLFLOW_RUN_ID") or environ.get("AZUREML_RUN_ID")
        if not run or not environ.get("MLFLOW_TRACKING_URI") or importlib.util.find_spec("mlflow") is None:
            return None
        return cls(run, hc)

    def update(self, targets: Iterable[TargetInfo], node_rank: int | None = None) -> None:
        """Set the targets of this node, of which those that wait for a debugger are in the tag.

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
        """Write each change until cancelled; a tag that is still set is then deleted, without waiting for that."""
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(COALESCE)
                self._changed.clear()
                if self._wanted != self._written:
                    self._written = self._wanted
                    await self._write(self._written)
        finally:
            if self._written:
                self._delete()

    async def _write(self, text: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._arguments(text),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        output = b""
        try:
            async with timeout(WRITE_TIMEOUT):
                output, _ = await process.communicate()
        except TIMEOUT_ERRORS:
            output = b"TimeoutError"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # ends at once, and closes the pipe
        if process.returncode and not self._failed:
            self._failed = True
            logger.warning(
                "cannot write the tag '%s' of the run: %s", self._key, output.decode(errors="replace").strip()[:80]
            )

    def _delete(self) -> None:
        """Start the deletion; the agent exits before it is done."""
        silent = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
        with contextlib.suppress(OSError):
            os.posix_spawn(sys.executable, self._arguments(""), os.environ, file_actions=silent)

    def _arguments(self, text: str) -> list[str]:
        command = [sys.executable, "-m", "relay_agent.node.in_agent.set_tag", self._run, self._key]
        return [*command, text] if text else command
