"""A terminal for a program's output, as a person sees it: `pyte` carries out what moves the cursor and erases."""

import asyncio
import contextlib
import fcntl
import os
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable

import pyte

from relay_core.compat import TIMEOUT_ERRORS, timeout
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import environment

WIDTH, HEIGHT = 120, 40


class _Display(pyte.Screen):
    """Remembers from which columns the rest of the screen was erased."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self.erased_from: set[int] = set()

    def erase_in_display(self, how: int = 0, *arguments: object, **options: object) -> None:
        if how == 0:
            self.erased_from.add(self.cursor.x)
        super().erase_in_display(how, *arguments, **options)


class Screen:
    """What a program has written to its terminal."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.text = ""
        """All of it, control codes included."""
        self._display = _Display(width, height)
        self._stream = pyte.ByteStream(self._display)
        self._more = asyncio.Event()

    def add(self, data: bytes) -> None:
        self.text += data.decode()
        self._stream.feed(data)
        self._more.set()

    @property
    def lines(self) -> list[str]:
        """What can be read now, without empty lines."""
        return [line.rstrip() for line in self._display.display if line.strip()]

    @property
    def rows(self) -> list[list[pyte.screens.Char]]:
        """The cells of all lines, with their colours."""
        buffer, columns = self._display.buffer, range(self._display.columns)
        return [[buffer[line][column] for column in columns] for line in range(self._display.lines)]

    @property
    def erased_from(self) -> set[int]:
        """The columns of the cursor when the rest of the screen was erased."""
        return self._display.erased_from

    async def until(self, part: str) -> None:
        """Wait until something was written, if only for a moment."""
        await self.when(lambda: part in self.text, awaited=repr(part))

    async def when(self, holds: Callable[[], bool], *, awaited: str = "what is awaited") -> None:
        """Wait until something holds; `awaited` names it in the error."""
        try:
            async with timeout(DEADLINE):
                while not holds():
                    self._more.clear()
                    await self._more.wait()
        except TIMEOUT_ERRORS:
            raise AssertionError(f"{awaited} is missing; the screen shows\n" + "\n".join(self.lines)) from None


@contextlib.asynccontextmanager
async def screen(width: int = WIDTH, height: int = HEIGHT) -> AsyncIterator[tuple[Screen, int]]:
    """Yield what is shown on a pseudo-terminal of this size, and its descriptor for programs."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    shown, loop = Screen(width, height), asyncio.get_running_loop()
    loop.add_reader(ours, lambda: shown.add(os.read(ours, 65536)))
    try:
        yield shown, theirs
    finally:
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)


@contextlib.asynccontextmanager
async def client_on(descriptor: int, env: dict[str, str], *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run relay-client with a terminal for its output during a block."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay_client", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=descriptor,
        stderr=descriptor,
        env=environment(**{"TERM": "xterm", **env}),
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()
