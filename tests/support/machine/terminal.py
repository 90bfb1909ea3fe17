"""A program on a terminal of its own: what it shows is read, and keys are typed, Ctrl-C among them."""

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.machine.deadline import DEADLINE

ROOT = Path(__file__).resolve().parents[3]

_ON_A_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # the first terminal that a new session opens is its own
for number in range(3):
    os.dup2(terminal, number)
os.execv(sys.argv[2], sys.argv[2:])
"""
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A running program, and its screen since it was last looked at."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._shown = ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._receive)

    async def expect(self, text: str) -> str:
        """Wait until the program shows `text`, and return what it showed up to there."""
        try:
            return await asyncio.wait_for(self._find(text), DEADLINE)
        except asyncio.TimeoutError:
            raise AssertionError(f"{text!r} was not shown within {DEADLINE:.0f} s, but {self._shown!r}") from None

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    async def ask(self, line: str, prompt: str) -> str:
        """Type a line, and return what is shown between its echo and the next prompt."""
        self.type(line + "\n")
        await self.expect(f"{line}\n")
        return (await self.expect(prompt)).removesuffix(prompt)

    async def interrupt(self, prompt: str) -> str:
        """Type Ctrl-C until the prompt comes back, and return what is shown.

        Once is not always enough, here and in `kill`: a signal that comes just before Python's input() waits for a key
        is noticed when there is a key, or another signal.
        """
        while True:
            self.type(CTRL_C)
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._find(prompt), 5)

    async def kill(self, number: int) -> None:
        """Send a signal until the program has ended."""
        while self.process.poll() is None:
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.process.wait, 5)

    async def finish(self) -> tuple[int, str]:
        """Wait for the end of the program, and return its status and what it has shown."""
        try:
            status = await asyncio.to_thread(self.process.wait, DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program did not end; it has shown {self._shown!r}") from None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._find("\0 never"), 0.05)
        return status, self._shown

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self._master >= 0:
            self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)

    async def _find(self, text: str) -> str:
        while text not in self._shown:
            await self._changed.wait()
            self._changed.clear()
        end = self._shown.index(text) + len(text)
        found, self._shown = self._shown[:end], self._shown[end:]
        return found

    def _receive(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how the end of the program shows
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self._shown += data.decode(errors="replace").replace("\r\n", "\n")
        self._changed.set()


@contextlib.asynccontextmanager
async def on_terminal(code: str, *arguments: str) -> AsyncIterator[Terminal]:
    """Run Python code, which can import this project, on a new terminal."""
    master, slave = pty.openpty()
    name = os.ttyname(slave)
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}",
        *arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))}
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes a descriptor of ours and no pipes
        [sys.executable, "-c", _ON_A_TERMINAL, name, *command],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "dumb", "PYTHONUNBUFFERED": "1"},
    )
    terminal = Terminal(process, master)
    try:
        yield terminal
    finally:
        terminal.close()
        os.close(slave)
