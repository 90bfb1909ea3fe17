"""Runs the real commands as subprocesses, with a clean environment and their output scanned for secrets."""

import asyncio
import contextlib
import functools
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from relay_client.user_directory import DIRECTORY_VARIABLE
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.program import run as run_module
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE

REPOSITORY = Path(__file__).parents[3]
PY_SPY = Path(sys.executable).with_name("py-spy")
"""Prints the stacks of a Python program; optional."""


@functools.cache
def _client_directory() -> TemporaryDirectory[str]:
    """Return the directory of the relay-clients that this process starts.

    Commands look for running relay-clients there, and must not find those of the user, or of tests in other processes.
    """
    return TemporaryDirectory(prefix="relay-clients-")


def environment(**extra: str) -> dict[str, str]:
    """Return this environment without our programs' variables, but with their event loop and this process's clients."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RELAY_", "AZRELAY_")) or name == run_module.VARIABLE
    }
    return {**kept, "PYTHONUNBUFFERED": "1", DIRECTORY_VARIABLE: _client_directory().name, **extra}


async def communicate(process: asyncio.subprocess.Process, stdin: bytes) -> tuple[bytes, bytes]:
    """Return the program's stdout and stderr; what it has not read of `stdin` when it ends is lost.

    `Process.communicate` fails with uvloop if the program has ended before it is given its input.
    """
    assert process.stdin is not None
    with contextlib.suppress(RuntimeError, ConnectionError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    return await process.communicate()


@dataclass
class Finished:
    """How a program ended."""

    status: int
    stdout: str
    stderr: str


class Program:
    """A running program whose stderr can be waited on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stderr = ""

    async def line(self, part: str) -> str:
        """Return the next line of stderr that contains `part`."""
        try:
            async with timeout(DEADLINE):
                while raw := await self.process.stderr.readline():
                    text = raw.decode()
                    secrets.check(text)
                    self.stderr += text
                    if part in text:
                        return text
        except TIMEOUT_ERRORS:
            with contextlib.suppress(*TIMEOUT_ERRORS):  # the beginning of a line, if there is one
                async with timeout(0.1):
                    self.stderr += (await self.process.stderr.read(65536)).decode(errors="replace")
            secrets.check(self.stderr)
            raise AssertionError(f"no line with {part!r} within {DEADLINE:.0f} s; {self._wrote()}") from None
        raise AssertionError(f"the program ended without {part!r}; {self._wrote()}")

    async def finish(self, stdin: bytes = b"") -> Finished:
        """Give it all of its stdin, and wait for the end."""
        try:
            ending = communicate(self.process, stdin) if stdin else self.process.communicate()
            stdout, stderr = await asyncio.wait_for(ending, DEADLINE)
        except TIMEOUT_ERRORS:
            raise AssertionError(f"the program did not end within {DEADLINE:.0f} s; before, {self._wrote()}") from None
        secrets.check(stdout.decode(), stderr.decode())
        return Finished(self.process.returncode, stdout.decode(), self.stderr + stderr.decode())

    def _wrote(self) -> str:
        """Return what was read from its stderr so far."""
        return f"it wrote:\n{self.stderr}"


@contextlib.asynccontextmanager
async def program(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    has_stdin: bool = False,
    cwd: Path | None = None,
    python: Path | str = sys.executable,
) -> AsyncIterator[Program]:
    """Run `python -m module`; it is killed at the end of the block if it still runs."""
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE if has_stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**(env or {})),
        cwd=cwd,
    )
    has_failed = False
    try:
        yield Program(process)
    except Exception:
        has_failed = True
        await _print_stacks(process)
        raise
    finally:
        if process.returncode is None:
            process.kill()
        output = await process.communicate()
        if has_failed:
            print(f"{module} wrote last:", *(stream.decode(errors="replace")[-4000:] for stream in output if stream))


async def _print_stacks(process: asyncio.subprocess.Process) -> None:
    """Print where a program and its children are, for the report of a failed test."""
    if not PY_SPY.exists() or process.returncode is not None:
        return
    shown = [process.pid]
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just exited
        shown += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    for pid in shown:
        dump = await asyncio.create_subprocess_exec(
            *(str(PY_SPY), "dump", "--pid", str(pid)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        print((await dump.communicate())[0].decode(errors="replace"))


async def run(module: str, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> Finished:
    """Run `python -m module` to its end."""
    async with program(module, *arguments, env=env, has_stdin=bool(stdin)) as running:
        return await running.finish(stdin)


async def stop(client: Program) -> Finished:
    """Press Ctrl-C and return how the program ended."""
    client.process.send_signal(signal.SIGINT)
    finished = await client.finish()
    assert finished.status == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished
