"""The processes of a benchmark: started as users start them, watched from outside, ended through their own handles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from relay_client.demo.environment import Child, end_all
from relay_core.compat import timeout

__all__ = ["ROOT", "Conversation", "Held", "Programs", "Usage", "holding", "lines_of", "load", "python_json"]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 60.0


class Programs:
    """Child processes in one temporary directory; an async context manager that ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[Child] = []
        kept = {"RELAY_EVENT_LOOP"}  # compared by running the benchmarks with and without it
        self._environment = {name: os.environ[name] for name in os.environ if name in kept or name[:6] != "RELAY_"}
        self._environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_PROXY": "localhost,127.0.0.1"}

    async def __aenter__(self) -> Programs:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await end_all(self.children)

    async def python(self, name: str, module: str, *arguments: str) -> Child:
        """Start `python -m module`."""
        return await self.start(name, sys.executable, "-m", module, *arguments)

    async def start(self, name: str, *command: str) -> Child:
        """Start any command."""
        name = f"{name}-{len(self.children)}"
        child = await Child.start(name, command, logs=self.directory, cwd=self.directory, environment=self._environment)
        self.children.append(child)
        return child

    @contextlib.asynccontextmanager
    async def talking(self, module: str, *arguments: object) -> AsyncIterator[Conversation]:
        """Run `python -m module` for a block, which sends it lines; its stderr is kept in a file."""
        with (self.directory / f"{module}.err").open("ab") as err:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *map(str, arguments)),
                cwd=self.directory,
                env=self._environment | {"PYTHONHASHSEED": "0", "RELAY_NODE_DIR": str(self.directory / "node")},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=err,
            )
        try:
            yield Conversation(process, Path(err.name))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.stdin.close()  # ends its children that read it
            await process.communicate()

    async def end(self, child: Child) -> None:
        """End one before the others."""
        await child.end()
        self.children.remove(child)


class Conversation:
    """A program that answers each line with a line of JSON.

    Args:
        process: With pipes for stdin and stdout.
        errors: The file with its stderr.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def ask(self, line: object) -> Any:
        """Send it a line and return its answer."""
        self._process.stdin.write(f"{line}\n".encode())
        return await self.receive()

    async def receive(self) -> Any:
        """Return the next value that it prints; raises if it ends instead."""
        async with timeout(START_TIMEOUT):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program ended early:\n{self._errors.read_text(errors='replace')}")
        return json.loads(line)


async def lines_of(child: Child, ready: Callable[[str], bool] = bool) -> str:
    """Return what a program has printed, errors first, once it is `ready`; raises if it ends before."""
    async with timeout(START_TIMEOUT):
        while not ready(child.output()):
            if not child.running:
                raise RuntimeError(f"{child.name} ended early:\n{child.output()}")
            await asyncio.sleep(0.005)
    return child.output()


async def load(*arguments: object) -> Any:
    """Run one load generator to its end and return what it measured."""
    return await python_json("tests.bench.load", *arguments)


async def python_json(module: str, *arguments: object) -> Any:
    """Run `python -m module`, or `python -c code`, to its end and return the JSON of its last line."""
    process = await _python(module, *arguments)
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(map(str, arguments))} failed:\n{err.decode()}")
    return json.loads(out.splitlines()[-1])


@dataclass(frozen=True)
class Held:
    """Connections that are open and have proved to work."""

    count: int
    seconds: float
    """The time to open them, one by one."""


@contextlib.asynccontextmanager
async def holding(port: int, count: int, *, ports: int = 1) -> AsyncIterator[Held]:
    """Hold connections to `ports` ports from `port` on for a block."""
    process = await _python("tests.bench.load", "hold", port, "--count", count, "--ports", ports)
    try:
        line = json.loads(await process.stdout.readline())
        yield Held(line["held"], line["seconds"])
    finally:
        process.kill()
        await process.communicate()


async def _python(module: str, *arguments: object) -> asyncio.subprocess.Process:
    command = [module] if module == "-c" else ["-m", module]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        *map(str, arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class Usage:
    """CPU seconds that programs use from now on."""

    def __init__(self, children: dict[str, Child]) -> None:
        self._processes = {name: psutil.Process(child.pid) for name, child in children.items()}
        self._before = {name: _cpu(process) for name, process in self._processes.items()}

    def seconds(self) -> dict[str, float]:
        """Return them by name."""
        return {name: _cpu(process) - self._before[name] for name, process in self._processes.items()}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
