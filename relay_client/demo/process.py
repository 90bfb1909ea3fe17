"""A child process of the demo, whose output is written to files."""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay_client.demo.checks import DemoFailed
from relay_core.compat import TIMEOUT_ERRORS, timeout

__all__ = ["Child"]

END_TIMEOUT = 5.0
"""Seconds that a program has to exit after SIGTERM before it is killed; the demo's programs exit within a second."""


class Child:
    """A program that was started."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stdout: Path, stderr: Path) -> None:
        self.name = name
        self._process = process
        self._stdout = stdout
        self._stderr = stderr

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid} status={self._process.returncode}>"

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, logs: Path, cwd: Path, environment: Mapping[str, str]
    ) -> Child:
        """Start a program in a separate session: Ctrl-C then reaches only the demo, which terminates the program."""
        stdout, stderr = logs / f"{name}.out", logs / f"{name}.err"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        return cls(name, process, stdout, stderr)

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until the program has exited."""
        return self._process.returncode is None

    def lines(self) -> list[str]:
        """Return the lines that the program has written to stdout so far."""
        return self._stdout.read_text(errors="replace").splitlines()

    def output(self) -> str:
        """Return the program's output so far, stderr before stdout."""
        return self._stderr.read_text(errors="replace") + self._stdout.read_text(errors="replace")

    async def wait(self, *, within: float | None = None) -> int:
        """Wait until the program has exited, and return its exit status.

        Raises:
            DemoFailed: the program is still running after `within` seconds.
        """
        try:
            async with timeout(within):
                return await self._process.wait()
        except TIMEOUT_ERRORS:
            raise DemoFailed(f"{self.name} is still running after {within:g} s") from None

    async def end(self) -> None:
        """Terminate the program; kill it if it does not exit in time."""
        for send_signal in (self._process.terminate, self._process.kill):
            if not self.running:
                return
            with contextlib.suppress(ProcessLookupError, DemoFailed):
                send_signal()
                await self.wait(within=END_TIMEOUT)

    def kill(self) -> None:
        """Kill the program if it is still running."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
