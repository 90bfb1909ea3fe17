"""A real terminal that wraps its lines anew when it is resized: tmux, without a window."""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from relay_core.compat import TIMEOUT_ERRORS, timeout
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import environment


class Tmux:
    """A pane of tmux in which relay-client runs."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def run(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run a command of tmux, and return what it prints; raise an AssertionError if it fails."""
        # The server, which the first command leaves behind, inherits a copy of the pipe from uvloop and keeps it open.
        starts_server = arguments[0] == "new-session"
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments),
            stdout=None if starts_server else asyncio.subprocess.PIPE,
            env=environment(**{"TERM": "xterm-256color", **(env or {})}),
        )
        output, _ = await process.communicate()
        assert not process.returncode, f"tmux {arguments[0]} has failed"
        return (output or b"").decode()

    async def resize(self, width: int, height: int) -> None:
        """Make the terminal narrower or wider."""
        await self.run("resize-window", "-x", str(width), "-y", str(height))

    async def lines(self) -> list[str]:
        """Return everything on the terminal, including what has scrolled out; a wrapped line is one line."""
        text = await self.run("capture-pane", "-p", "-J", "-S", "-")
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    async def until(self, part: str) -> list[str]:
        """Wait until a line contains a text."""
        shown: list[str] = []
        try:
            async with timeout(DEADLINE):
                while not any(part in line for line in shown):
                    await asyncio.sleep(0.1 if shown else 0)
                    shown = await self.lines()
        except TIMEOUT_ERRORS:
            raise AssertionError(f"{part!r} was not shown; the terminal shows\n" + "\n".join(shown)) from None
        return await self.lines()


@contextlib.asynccontextmanager
async def client_in_tmux(
    directory: Path, env: dict[str, str], *arguments: str, width: int = 120, height: int = 30
) -> AsyncIterator[Tmux]:
    """Run relay-client in a terminal of this size, full of other lines, during a block."""
    tmux = Tmux(directory / "tmux")
    command = ["sh", "-c", f'seq {2 * height}; exec "$@"', "sh", sys.executable, "-m", "relay_client", *arguments]
    await tmux.run("new-session", "-d", "-x", str(width), "-y", str(height), *command, env=env)
    try:
        yield tmux
    finally:
        with contextlib.suppress(AssertionError):  # relay-client has ended, and so has tmux
            await tmux.run("kill-server")


MISSING = "" if shutil.which("tmux") else "tmux is not installed"
