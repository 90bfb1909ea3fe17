"""The processes of a benchmark: started as users start them, watched from outside, ended through their own handles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from relay_client.demo.child import Child
from relay_core.net.compat import timeout

__all__ = ["ROOT", "Programs", "Usage", "lines_of", "load"]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 60.0


class Programs:
    """Child processes in one temporary directory; an async context manager that ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[Child] = []
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        self._environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_PROXY": "localhost,127.0.0.1"}

    async def __aenter__(self) -> Programs:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        try:
            for child in reversed(self.children):
                await child.end()
        finally:
            for child in self.children:
                child.kill()

    async def python(self, name: str, module: str, *arguments: str) -> Child:
        """Start `python -m module`."""
        return await self.start(name, sys.executable, "-m", module, *arguments)

    async def start(self, name: str, *command: str) -> Child:
        """Start any command."""
        name = f"{name}-{len(self.children)}"
        child = await Child.start(
            name, command, logs=self.directory, cwd=self.directory, environment=self._environment
        )
        self.children.append(child)
        return child

    async def end(self, child: Child) -> None:
        """End one before the others."""
        await child.end()
        self.children.remove(child)


async def lines_of(child: Child, ready: Callable[[str], bool] = bool) -> str:
    """Return what a program has printed, errors first, once it is `ready`; raises if it ends before."""
    async with timeout(START_TIMEOUT):
        while not ready(child.output()):
            if not child.running:
                raise RuntimeError(f"{child.name} ended early:\n{child.output()}")
            await asyncio.sleep(0.005)
    return child.output()


async def load(*arguments: object) -> dict[str, object]:
    """Run one load generator to its end and return what it measured."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.load", *map(str, arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"load {' '.join(map(str, arguments))} failed")
    result: dict[str, object] = json.loads(out)
    return result


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
