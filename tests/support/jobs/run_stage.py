"""A directory with a job's files for `relay-agent run`, and the record of which of its processes took part."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.jobs.processes import ROOT
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import communicate

RECORDER = """
import json, os, sys

def start(settings):
    shown = [settings.access.hc, settings.port, settings.ranks.every]
    line = json.dumps({"pid": os.getpid(), "program": sys.orig_argv[1:], "settings": shown})
    with open(os.environ["RECORD"], "a") as record:
        record.write(line + "\\n")
    exec(os.environ.get("AT_START", ""), globals())
    act()

def act():  # not in a module's own code, as what happens during a wait
    pass

try:
    import relay_agent.api
except ImportError:  # in a Python without it
    pass
else:
    relay_agent.api.start_debugging = start
"""


class Stage:
    """A directory with a job's files, and the record of who took part."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "site").mkdir()
        self.write("site/sitecustomize.py", RECORDER)
        self.environ = {name: text for name, text in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))}
        self.environ |= {
            "RECORD": str(directory / "record"),
            "PYTHONPATH": os.pathsep.join([str(directory / "site"), str(ROOT)]),
        }

    def write(self, name: str, text: str, mode: int = 0o644) -> str:
        """Write a file, and return its path."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        return str(path)

    @contextlib.asynccontextmanager
    async def start(
        self,
        *command: str,
        options: tuple[str, ...] = (),
        under_run: bool = True,
        run: tuple[str, ...] = (sys.executable, "-E", "-m", "relay_agent"),
        **environ: str,
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a command, under `relay-agent run` or without.

        Args:
            command: The command.
            options: More options of `run`.
            under_run: Whether `run` starts the command.
            run: What starts relay-agent. A `sitecustomize` on PYTHONPATH is for the job, so this Python has `-E`.
            environ: More of the environment.
        """
        run = (*run, "run", "--hc", "myhc", *options, "--")
        process = await asyncio.create_subprocess_exec(
            *(run if under_run else ()),
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ | environ,
            cwd=self.directory,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self, *command: str, stdin: bytes = b"", **how: Any) -> tuple[int | None, bytes, str]:
        """Run a command to its end, and return status, stdout and stderr."""
        async with self.start(*command, **how) as process:
            out, err = await asyncio.wait_for(communicate(process, stdin), DEADLINE)
            return process.returncode, out, err.decode()

    async def python(self, *arguments: str, **how: Any) -> tuple[int | None, list[str], str]:
        """Run a Python program to its end, and return its lines of stdout."""
        status, out, err = await self.run(sys.executable, *arguments, **how)
        return status, out.decode().splitlines(), err

    def record(self) -> list[dict[str, Any]]:
        """Return who took part, in the order of their coming."""
        path = self.directory / "record"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def programs(self) -> list[str]:
        """Return the names of the programs that took part."""
        return [Path(entry["program"][0]).name for entry in self.record()]
