"""The terminal of VS Code, xterm.js, which wraps its lines anew when it is resized."""

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

EDITORS = Path(__file__).parents[2] / "editors"
NODE = shutil.which("node")
MISSING = (
    ""
    if NODE and (EDITORS / "node_modules/@xterm/headless").is_dir()
    else "node or @xterm/headless is not installed (make extras)"
)


class VSCodeTerminal:
    """A terminal that text is written to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        self._process, self._input, self._output = process, process.stdin, process.stdout

    def write(self, text: str) -> None:
        """Write text as a program does: the terminal driver begins a new line in the first column."""
        self._send(data=base64.b64encode(text.replace("\n", "\r\n").encode()).decode())

    def resize(self, width: int, height: int) -> None:
        """Make the terminal narrower or wider."""
        self._send(resize=[width, height])

    async def lines(self) -> list[str]:
        """Return everything on the terminal, including what has scrolled out; a wrapped line is one line."""
        self._send()
        return json.loads(await self._output.readline())

    def _send(self, **message: object) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")


@contextlib.asynccontextmanager
async def vscode_terminal(width: int, height: int) -> AsyncIterator[VSCodeTerminal]:
    """Run a terminal of this size during a block."""
    assert NODE
    process = await asyncio.create_subprocess_exec(
        *(NODE, "terminal.js", str(width), str(height)),
        cwd=EDITORS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield VSCodeTerminal(process)
    finally:
        process.kill()
        await process.wait()
