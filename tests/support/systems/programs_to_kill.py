"""Two ranks, their node's agent, a relay-server and a relay-client as real processes, each of which may be killed.

What a service manager, a user or a launcher would start again is started again: relay-server, relay-client and ranks.
Agents and debug adapters are not: the product replaces them.
"""

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from relay_client.demo.environment import Child
from relay_core.compat import TIMEOUT_ERRORS
from relay_core.net.tasks import TaskSet
from tests.support.editors.stepper import TRAIN, Stepper
from tests.support.jobs.running import agents_on
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.machine.programs import environment

HC = "kills"
RANKS = 2
MARK = "TESTS_KILLS_RUN"
"""In the environment of all programs; a rank and its debug adapter have `RANK_MARK` as well."""
RANK_MARK = "TESTS_KILLS_RANK"
DESCRIPTORS_MARGIN = 3
"""Descriptors that may be open at one moment and not at another: a search, a retry."""
MEMORY_MARGIN = 16
"""MiB by which programs differ at any time: the sizes of buffers and pools."""
REASONS = {
    "agent": ["the agent process on "],
    "adapter": ["debugpy's adapter failed: ", "the debugger exited unexpectedly; "],
    "rank": ["was killed by SIGKILL", "disconnected unexpectedly"],
}
"""What editors are shown, one of these, after a kill; a killed relay-client cannot show anything."""


@dataclass
class Fleet:
    """The programs, and the editors that step through both ranks."""

    directory: Path
    ports: list[int]
    relay_port: int
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    children: dict[str, Child] = field(default_factory=dict)
    steppers: list[Stepper] = field(default_factory=list)
    started: int = 0

    @property
    def node(self) -> Path:
        return self.directory / "node"

    @property
    def script(self) -> Path:
        return self.directory / "train.py"

    # Starting:

    async def start(self, name: str) -> None:
        """Start `relay`, `client` or `rank 0`, ..., and return when it is ready."""
        if name == "relay":
            config = ["--config", f"{self.directory}/relay/relay.toml", "--ready-file", f"{self.directory}/ready.json"]
            await self._start(name, "ready on", "relay_server", "serve", *config)
        elif name == "client":
            first, last = self.ports[0], self.ports[-1]
            await self._start(name, "ready on", "relay_client", "--ports", f"{first}-{last}", *self._access("client"))
        else:
            rank = name.removeprefix("rank ")
            options = ["--port", str(self.ports[0]), "--debug-ranks", "none", *self._access("agent")]
            variables = {"RELAY_RANK": rank, "RELAY_WORLD_SIZE": str(RANKS), RANK_MARK: rank}
            command = ["run", *options, "--", sys.executable, str(self.script)]
            await self._start(name, "a debugger can attach", "relay_agent", *command, **variables)

    async def prepare(self) -> None:
        """Create the relay's configuration."""
        init = ["init", f"{self.directory}/relay", "--hc", HC, "--port", str(self.relay_port)]
        child = await self._run("relay_server", *init)
        assert 0 == await child.wait(within=DEADLINE), child.output()

    async def targets(self) -> list[dict[str, object]]:
        """Return what `relay-client targets` finds."""
        child = await self._run("relay_client", "targets", "--json", *self._access("client"))
        assert 0 == await child.wait(within=DEADLINE), child.output()
        nodes = json.loads("\n".join(child.lines()))["nodes"]
        return [target for node in nodes for target in node["targets"]]

    def _access(self, role: str) -> list[str]:
        ready = json.loads((self.directory / "ready.json").read_text())
        connection = f"{self.directory}/relay/{HC}.{role}.connection"
        return ["--hc", HC, "--connection-string-file", connection, "--ca-file", ready["ca_file"]]

    async def _start(self, name: str, ready: str, module: str, *arguments: str, **variables: str) -> None:
        child = self.children[name] = await self._run(module, *arguments, **variables)
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while ready not in child.output():
            assert child.running, child.output()
            assert asyncio.get_running_loop().time() < deadline, child.output()
            await asyncio.sleep(0.02)

    async def _run(self, module: str, *arguments: str, **variables: str) -> Child:
        self.started += 1
        return await Child.start(
            f"{self.started}-{module}",
            [sys.executable, "-m", module, *arguments],
            logs=self.directory,
            cwd=self.directory,
            environment=environment(**{MARK: self.mark, "RELAY_NODE_DIR": str(self.node)}, **variables),
        )

    # Killing:

    async def kill(self, victim: str) -> None:
        """Kill `relay`, `client`, `agent`, `rank N` or `adapter N`, and start again what nobody else does."""
        if victim in self.children:
            child = self.children.pop(victim)
            child.kill()
            await child.wait(within=DEADLINE)
            await self.start(victim)
            return
        processes = agents_on(self.node) if victim == "agent" else self._adapters(victim.removeprefix("adapter "))
        for process in processes:
            process.kill()

    def family(self) -> list[psutil.Process]:
        """Return all programs that are running."""
        return [process for process in psutil.process_iter() if _variables(process).get(MARK) == self.mark]

    def _adapters(self, rank: str) -> list[psutil.Process]:
        return [
            process
            for process in self.family()
            if _variables(process).get(RANK_MARK) == rank and "--for-server" in process.cmdline()
        ]

    # Looking:

    def client_log(self) -> str:
        """Return what relay-client has logged so far."""
        return self.children["client"].output()

    def logs(self) -> str:
        """Return the end of what each running program has logged."""
        return "\n".join(f"{name}:\n{child.output()[-4000:]}" for name, child in self.children.items())

    def resources(self) -> dict[str, tuple[int, int]]:
        """Return the open descriptors and the MiB of memory of each program that lives long."""
        programs = {name: psutil.Process(child.pid) for name, child in self.children.items()}
        (programs["agent"],) = agents_on(self.node)
        return {
            name: (process.num_fds(), process.memory_info().rss >> 20) for name, process in sorted(programs.items())
        }


def _variables(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it has ended, or is not ours
        return {}


@contextlib.asynccontextmanager
async def fleet(directory: Path) -> AsyncIterator[Fleet]:
    """Run all programs; whatever is left of them at the end of the block is killed."""
    running = Fleet(directory, consecutive_ports(RANKS), free_port())
    running.script.write_text(TRAIN)
    try:
        await running.prepare()
        for name in ("relay", "client", *(f"rank {rank}" for rank in range(RANKS))):
            await running.start(name)
        yield running
    finally:
        for process in running.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for child in running.children.values():
            await child.wait(within=DEADLINE)


@contextlib.asynccontextmanager
async def stepping(running: Fleet) -> AsyncIterator[None]:
    """Step through both ranks during a block; the sessions are ended in order."""
    running.steppers = [Stepper(port, running.script) for port in running.ports]
    async with TaskSet() as tasks:
        for stepper in running.steppers:
            tasks.spawn(stepper.run(), name=f"{stepper!r}")
        for stepper in running.steppers:
            await asyncio.wait_for(stepper.until_steps(3), DEADLINE)
        yield


def victims() -> list[str]:
    """Return what can be killed."""
    ranks = range(RANKS)
    return ["relay", "agent", "client", *(f"adapter {rank}" for rank in ranks), *(f"rank {rank}" for rank in ranks)]


async def kill_and_look(running: Fleet, victim: str) -> str:
    """Kill one program while both editors step; return what came of it, in one line, after both step again.

    Raises:
        AssertionError: a session ended that must continue, one continued that cannot, or the reason is wrong.
    """
    steppers, loop = running.steppers, asyncio.get_running_loop()
    sessions = [stepper.sessions for stepper in steppers]
    endings = [len(stepper.endings) for stepper in steppers]
    logged = 0 if victim == "client" else len(running.client_log())
    must_end = [_ends_with(victim, rank) for rank in range(RANKS)]
    started = loop.time()
    await running.kill(victim)
    for stepper, count, ends in zip(steppers, sessions, must_end, strict=True):
        try:
            while ends and stepper.sessions == count:
                await asyncio.wait_for(stepper.until_steps(1), DEADLINE)
            await asyncio.wait_for(stepper.until_steps(3), DEADLINE)
        except TIMEOUT_ERRORS:
            raise AssertionError(f"killed {victim}: {stepper!r} does not step; {running.logs()}") from None
    seconds = loop.time() - started
    assert must_end == [stepper.sessions > count for stepper, count in zip(steppers, sessions, strict=True)]
    reasons = [stepper.endings[count:] for stepper, count in zip(steppers, endings, strict=True)]
    log = running.client_log()[logged:]
    for texts, ends in zip(reasons, must_end, strict=True):
        kind = victim.partition(" ")[0]
        if ends and kind in REASONS:
            assert any(reason in text for text in texts for reason in REASONS[kind]), (victim, texts, log)
    shown = sorted({text for texts in reasons for text in texts})
    return f"killed {victim}: both step again after {seconds:.1f} s; {'; '.join(shown) or 'no session ended'}"


def _ends_with(victim: str, rank: int) -> bool:
    """Return whether the debug session of a rank ends with a program."""
    return victim in {"agent", "client", f"adapter {rank}", f"rank {rank}"}


async def look_for_remains(running: Fleet) -> str:
    """Check what the programs hold after all editors have left, beside new ones; return it in one line.

    Raises:
        AssertionError: something is left of what has ended.
    """
    await _until_free(running)
    used = running.resources()
    for name in list(running.children):
        child = running.children.pop(name)
        await child.end()
    await asyncio.wait_for(_until_gone(running), DEADLINE)
    assert not running.node.exists(), os.listdir(running.node)  # noqa: PTH208 - names only
    for name in ("relay", "client", *(f"rank {rank}" for rank in range(RANKS))):
        await running.start(name)
    async with stepping(running):
        pass
    await _until_free(running)
    fresh = running.resources()
    for name, (descriptors, memory) in used.items():
        new_descriptors, new_memory = fresh[name]
        assert descriptors <= new_descriptors + DESCRIPTORS_MARGIN, (name, used, fresh)
        assert memory <= new_memory + MEMORY_MARGIN, (name, used, fresh)
    return f"left: no process, no file, no holder; descriptors and MiB {used}, of new programs {fresh}"


async def _until_free(running: Fleet) -> None:
    """Wait until both ranks, and nothing else, are announced, and nobody holds them."""

    async def are_free() -> bool:
        found = await running.targets()
        assert len(found) <= RANKS, found
        return len(found) == RANKS and not any(target.get("holder") for target in found)

    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not await are_free():
        assert asyncio.get_running_loop().time() < deadline, await running.targets()
    assert 1 == len(agents_on(running.node))


async def _until_gone(running: Fleet) -> None:
    while running.family():
        await asyncio.sleep(0.1)
