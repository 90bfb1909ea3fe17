"""Runs an odd program plainly and in the ways in which relay-debug takes part, and compares the results."""

import asyncio
import contextlib
import dataclasses
import os
import re
import sys
import zipapp
from collections.abc import AsyncIterator
from pathlib import Path

from relay_client.dap import DapClient
from relay_core.errors import RelayDebugError
from tests.programs.odd import API, EDITOR, RUN, Odd
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import communicate
from tests.support.network.relay import HC, LocalRelay

__all__ = ["Outcome", "Ways", "difference", "running_ways"]

KEEPER = "import signal; signal.pause()"
"""A process that keeps the node's agent running between the programs."""
LAST_EVENTS = 2.0
"""Seconds for what a debug session still sends after its program has ended."""
OUR_LINES = ("relay-agent: ", "relay-agent ")
CALL = "import relay_agent; relay_agent.start_remote_debugging({hc!r}, {port}, wait=0)"


@dataclasses.dataclass
class Outcome:
    """What a program has left behind."""

    status: int | None
    stdout: str
    stderr: str
    """Without the lines of relay-debug."""
    files: dict[str, bytes]
    lines: str
    """All of stderr, and the lines in the editor."""
    is_stopped: bool = True
    """Whether the editor has stopped at the marked line; True without an editor, or without such a line."""


def difference(plain: Outcome, other: Outcome) -> frozenset[str]:
    """Return what differs between a plain run and another one."""
    compared = ("status", "stdout", "stderr", "files")
    found = {name for name in compared if getattr(plain, name) != getattr(other, name)}
    return frozenset(found if other.is_stopped else {*found, "not stopped"})


class Ways:
    """The ways to run a program, with a relay, an agent and a client that all programs share.

    Args:
        relay: The relay.
        directory: Of the node.
        ports: Logical ports of the three ways; the client has opened that of the editor.
    """

    def __init__(self, relay: LocalRelay, directory: Path, ports: dict[str, int]) -> None:
        self._relay = relay
        self._directory = directory
        self._ports = ports

    async def plain(self, odd: Odd, directory: Path) -> Outcome:
        """Run it without relay-debug."""
        return await self._result(odd, await self._start(odd, directory, way=None), directory)

    async def with_us(self, odd: Odd, directory: Path, way: str) -> Outcome:
        """Run it in one of the other ways."""
        process = await self._start(odd, directory, way=way)
        ended = asyncio.ensure_future(self._result(odd, process, directory))
        try:
            if way != EDITOR:
                return await ended
            shown, is_stopped = await self._edit(odd, directory, ended)
            outcome = await ended
            return dataclasses.replace(outcome, lines=outcome.lines + shown, is_stopped=is_stopped)
        finally:
            ended.cancel()

    async def _start(self, odd: Odd, directory: Path, *, way: str | None) -> asyncio.subprocess.Process:
        call = CALL.format(hc=HC, port=self._ports[API])
        program = _write(odd, directory, odd.source(call) if way == API else odd.source())
        command = [sys.executable, *odd.options, program]
        if way in {RUN, EDITOR}:
            ranks = "0" if way == EDITOR else "none"
            options = ("--hc", HC, "--port", str(self._ports[way]), "--debug-ranks", ranks)
            command = [sys.executable, "-m", "relay_agent", "run", *options, "--", *command]
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(odd, directory, way),
            cwd=directory,
        )

    def _environment(self, odd: Odd, directory: Path, way: str | None) -> dict[str, str]:
        dropped = ("RELAY_", "AZRELAY_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        if way is None:
            return kept
        node = directory.with_name(f"node-{way}") if odd.has_own_agent else self._directory / "node"
        return kept | access(self._relay, self._directory, "listen") | {"RELAY_NODE_DIR": str(node)}

    async def _result(self, odd: Odd, process: asyncio.subprocess.Process, directory: Path) -> Outcome:
        try:
            out, err = await asyncio.wait_for(communicate(process, odd.stdin), DEADLINE)
        finally:
            if process.returncode is None:
                process.kill()
        stdout, stderr = (_without_places(text, directory).decode(errors="replace") for text in (out, err))
        secrets.check(stdout, stderr)
        lines = stderr.splitlines(keepends=True)
        theirs = "".join(line for line in lines if not line.startswith(OUR_LINES))
        return Outcome(process.returncode, stdout, theirs, _files(directory), stderr)

    async def _edit(self, odd: Odd, directory: Path, ended: asyncio.Future[Outcome]) -> tuple[str, bool]:
        """Attach until the program has ended, and return what the editor has shown and whether it has stopped.

        A program that becomes another one waits for the editor once more.
        """
        line, shown, stops = odd.stop_line, [], 0
        breakpoints = {str(directory / "program.py"): [{"line": line}]} if line else {}
        while not ended.done():
            with contextlib.suppress(RelayDebugError):  # a session may end in any way; the outcome is compared
                async with await DapClient.connect("127.0.0.1", self._ports[EDITOR], within=DEADLINE) as dap:
                    is_attached = asyncio.Event()
                    session = asyncio.ensure_future(_session(dap, breakpoints, shown, is_attached))
                    await asyncio.wait((ended, session), return_when=asyncio.FIRST_COMPLETED)
                    if is_attached.is_set():
                        await asyncio.wait((session,), timeout=LAST_EVENTS)
                    session.cancel()
                    stops += session.result() if session.done() and not session.cancelled() else 0
        return "".join(shown), bool(stops) or line is None


async def _session(dap: DapClient, breakpoints: dict, shown: list[str], is_attached: asyncio.Event) -> int:
    """Attach, continue at each stop until the session ends, and return the number of breakpoints hit."""
    stops = 0
    with contextlib.suppress(RelayDebugError):
        await dap.attach(breakpoints, within=DEADLINE)
        is_attached.set()
        while event := await _next(dap, shown):
            stops += event["body"]["reason"] == "breakpoint"
            await dap.request("continue", {"threadId": event["body"]["threadId"]}, within=DEADLINE)
    return stops


async def _next(dap: DapClient, shown: list[str]) -> dict | None:
    """Return the next stop, or None when the session has ended; what the editor shows on the way is kept."""
    while (event := await dap.wait_for_event("stopped", "terminated", "output", within=DEADLINE))["event"] == "output":
        if event["body"].get("category") in {"console", "important"}:
            shown.append(event["body"]["output"])
    return event if event["event"] == "stopped" else None


def _write(odd: Odd, directory: Path, source: str) -> str:
    directory.mkdir(parents=True)
    directory.chmod(0o777)  # for the program that changes its user
    if not odd.is_zipapp:
        (directory / "program.py").write_text(source)
        return "program.py"
    packed = directory / "packed"
    packed.mkdir()
    (packed / "__main__.py").write_text(source)
    zipapp.create_archive(packed, directory / "program.pyz")
    return "program.pyz"


def _files(directory: Path) -> dict[str, bytes]:
    """Return the files that a program has written; sources, bytecode and coverage's database differ in any case."""
    ours = {"program.py", "program.pyz", "packed", "__pycache__", "coverage.data"}
    found = (path for path in directory.rglob("*") if path.is_file() and not ours & set(path.parts))
    return {str(path.relative_to(directory)): _without_places(path.read_bytes(), directory) for path in found}


def _without_places(data: bytes, directory: Path) -> bytes:
    """Return output without the name of the directory and the addresses of objects."""
    return re.sub(rb"0x[0-9a-f]{6,}", b"0x", data.replace(str(directory).encode(), b"DIR"))


@contextlib.asynccontextmanager
async def running_ways(relay: LocalRelay, directory: Path) -> AsyncIterator[Ways]:
    """Start the agent and the client that all programs share."""
    ports = dict(zip((EDITOR, RUN, API, "keeper"), consecutive_ports(4), strict=True))
    keeper = directory / "keeper.py"
    keeper.write_text(KEEPER)
    options = ("--port", str(ports["keeper"]), "--debug-ranks", "none")
    async with (
        running_job(relay, keeper, *options) as kept,
        running_client(relay, directory, "--ports", str(ports[EDITOR])),
    ):
        await kept.line("listening on")
        yield Ways(relay, directory, ports)
