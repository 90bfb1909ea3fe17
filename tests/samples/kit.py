"""Runs a sample's programs as a user does, and debugs them as an editor does."""

import asyncio
import asyncio.subprocess
import contextlib
import fcntl
import functools
import importlib.util
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from relay_client.dap import DapClient
from tests.support.editors.stopped import Stopped
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Program, program
from tests.support.network.relay import LocalRelay


def load(path: Path) -> ModuleType:
    """Import a sample's file by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _installed(*modules: str) -> bool:
    """Whether a module and the packages around it, outermost first, are there."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


needs_sdk = pytest.mark.skipif(
    not _installed("azure", "azure.ai", "azure.ai.ml"), reason="azure-ai-ml is not installed"
)
needs_torch = pytest.mark.skipif(not _installed("torch"), reason="torch is missing")

NO_INDEX = re.compile(
    r"NewConnectionError|ConnectTimeoutError|NameResolutionError|ReadTimeoutError|Max retries exceeded"
    r"|Failed to fetch|error sending request|No matching distribution found for (?:hatchling|pipx|uv)\b"
)
"""What pip and uv print when they cannot reach their index, or if it has no tools."""

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"


@functools.cache
def wheel() -> Path:
    """The wheel of this checkout, built once for all workers by the samples' own script.

    A test without a package index is skipped.
    """
    folder = _run_folders[-1] / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for built_by_another_worker in folder.glob("*.whl"):
            return built_by_another_worker
        try:
            built: Path = load(SAMPLES / "shared" / "build_wheel.py").build_wheel(folder)
        except SystemExit as error:
            if NO_INDEX.search(str(error)):
                pytest.skip("the wheel cannot be built: no package index offers hatchling here")
            raise
    return built


@contextlib.contextmanager
def shared_by_workers(folder: Path) -> Iterator[None]:
    """Keep what is made once for all workers of a test run in a folder that they share."""
    _run_folders.append(folder)
    try:
        yield
    finally:
        _run_folders.remove(folder)
        wheel.cache_clear()


_run_folders: list[Path] = []


def environment(**extra: str) -> dict[str, str]:
    """Return this environment without settings for a relay, with this project and this Python in front.

    Lines are printed in one piece each, which they are not with PYTHONUNBUFFERED: other programs write there too.
    """
    ignored = ("RELAY_", "AZ", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    python = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    return kept | python | {"PATH": path, "OMP_NUM_THREADS": "1"} | extra


def free_ports(count: int) -> int:
    """Return the first of some consecutive ports that nobody uses."""
    return consecutive_ports(count)[0]


@dataclass
class Running:
    """A program, and what it has printed so far."""

    process: asyncio.subprocess.Process
    output: str = ""

    async def line(self, part: str) -> str:
        """Return the next line of its output that contains `part`."""
        while raw := await self._next(f"a line with {part!r}"):
            if part in raw.decode():
                return raw.decode().rstrip("\n")
        raise AssertionError(f"the program ended without {part!r}; it printed:\n{self.output}")

    async def finish(self) -> int:
        """Return its exit status once it has ended."""
        while await self._next("the end of the program"):
            pass
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    async def rest(self) -> None:
        """Take what it still prints until it has ended, for whoever looks for the cause of a failure."""
        self._take((await asyncio.wait_for(self.process.communicate(), DEADLINE))[0])

    async def _next(self, awaited: str) -> bytes:
        """Return its next line, which is kept, or b"" at the end of its output."""
        assert self.process.stdout is not None
        try:
            raw = await asyncio.wait_for(self.process.stdout.readline(), DEADLINE)
        except asyncio.TimeoutError:
            raise AssertionError(
                f"no output for {DEADLINE:.0f} s before {awaited}; it printed:\n{self.output}"
            ) from None
        self._take(raw)
        return raw

    def _take(self, raw: bytes) -> None:
        secrets.check(raw.decode())
        self.output += raw.decode()


@contextlib.asynccontextmanager
async def running(*command: str, cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run a program; at the end of the block it is asked to end, and made to."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    program = Running(process)
    try:
        yield program
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, asyncio.TimeoutError):
                    os.killpg(process.pid, number)
                    await program.rest()  # its agent, too, has its output
        print(program.output)


@dataclass
class Attached:
    """A debugger with one breakpoint."""

    client: DapClient
    source: Path
    line: int

    async def hit(self) -> Stopped:
        """Wait until the program stands at the breakpoint."""
        event = await self.client.wait_for_event("stopped", "terminated", within=DEADLINE)
        assert "stopped" == event["event"], f"the program ended without stopping at {self.source.name}:{self.line}"
        assert "breakpoint" == event["body"]["reason"]
        stopped = Stopped(self.client, event["body"]["threadId"])
        top = await stopped.frame()
        assert (str(self.source), self.line) == (top["source"]["path"], top["line"])
        return stopped


def line_of(source: Path, code: str) -> int:
    """Return the number of the one line that contains `code`."""
    (line,) = [number for number, text in enumerate(source.read_text().splitlines(), 1) if code in text]
    return line


@contextlib.asynccontextmanager
async def attached(
    port: int, source: Path, code: str, *, remote_root: str | Path = ".", **how: str
) -> AsyncIterator[Attached]:
    """Attach with a breakpoint at the one line that contains `code`; detach at the end of the block.

    Args:
        port: Local port of relay-client.
        source: The file on this machine; its folder is `localRoot`.
        code: Part of the line.
        remote_root: As in launch.json.
        how: More fields of the breakpoint, such as `condition`.
    """
    line = line_of(source, code)
    mapping = {"localRoot": str(source.parent), "remoteRoot": str(remote_root)}
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        wanted = {str(source): [{"line": line, **how}]}
        await client.attach(wanted, within=DEADLINE, pathMappings=[mapping], justMyCode=False)
        yield Attached(client, source, line)
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


@contextlib.asynccontextmanager
async def breakpoint_hit(
    port: int, source: Path, code: str, *, remote_root: str | Path = ".", **how: str
) -> AsyncIterator[Stopped]:
    """Attach as `attached` does, and wait until the program stands at the breakpoint."""
    async with attached(port, source, code, remote_root=remote_root, **how) as debugger:
        yield await debugger.hit()


@contextlib.asynccontextmanager
async def client_of(relay: LocalRelay, port: int) -> AsyncIterator[Program]:
    """Run relay-client for one port."""
    settings = {"RELAY_CONNECTION_STRING": relay.connection_string("send"), "RELAY_CA_FILE": str(relay.ca_file)}
    async with program("relay_client", "--ports", str(port), env=settings) as client:
        await client.line("relay-client: ready")
        yield client


def agent_settings(relay: LocalRelay) -> dict[str, str]:
    """Return the variables that a job needs to find the relay."""
    return {"RELAY_CONNECTION_STRING": relay.connection_string("listen"), "RELAY_CA_FILE": str(relay.ca_file)}


def commands(page: Path) -> list[list[str]]:
    """Return the command lines of a page, split into words."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [words for line in "".join(blocks).splitlines() if (words := shlex.split(line, comments=True))]


def on_ports(command: list[str], first: int, last: int | None = None) -> list[str]:
    """Return a page's command with other ports than 5678 and up, because other tests run at the same time."""
    words = []
    for before, word in zip(["", *command], command, strict=False):
        words.append(word)
        if word.endswith("local_relay.py"):
            words += ["--ports", f"{first}-{last or first}"]
        elif (before, word) == ("relay-agent", "run"):
            words += ["--port", str(first)]
    return words


async def client_settings(sample: Running) -> dict[str, str]:
    """Return the variables that a sample with a relay of its own prints for relay-client."""
    return dict(word.split("=", 1) for word in shlex.split(await sample.line("    export "))[1:])
