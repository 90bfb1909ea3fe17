"""Environment of the demo: a relay, a training job with its agent, and relay-client, in a temporary directory.

The three programs are the actual ones, started as a user would start them. The job runs a copy of the sample in a
separate directory, as it would on another machine.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from relay_client.demo.chaos import CutProxy
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import end_process, first_completed

# Checks for the demo's steps; a failed check stops the demo.


class DemoFailed(RelayDebugError):
    """A program or the debugger did not behave as the demo expects."""


def expect(what: str, expected: object, actual: object) -> None:
    """Check that two values are equal.

    Args:
        what: Description of the values, which becomes the subject of the error sentence.
        expected: The value that the demo expects.
        actual: The value that was observed.

    Raises:
        DemoFailed: the values differ.
    """
    if expected != actual:
        raise DemoFailed(f"{what}: expected {expected!r}, found {actual!r}")


# A child process of the demo, whose output is written to files.

END_TIMEOUT = 5.0
"""Seconds that a program has to exit after SIGTERM before it is killed; the demo's programs exit within a second."""


class Child:
    """A program that was started."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stdout: Path, stderr: Path) -> None:
        self.name = name
        self._process = process
        self._stdout = stdout
        self._stderr = stderr

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, logs: Path, cwd: Path, environment: Mapping[str, str]
    ) -> Child:
        """Start a program in a separate session: Ctrl-C then reaches only the demo, which terminates the program."""
        stdout, stderr = logs / f"{name}.out", logs / f"{name}.err"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        return cls(name, process, stdout, stderr)

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until the program has exited."""
        return self._process.returncode is None

    def lines(self) -> list[str]:
        """Return the lines that the program has written to stdout so far."""
        return self._stdout.read_text(errors="replace").splitlines()

    def output(self) -> str:
        """Return the program's output so far, stderr before stdout."""
        return self._stderr.read_text(errors="replace") + self._stdout.read_text(errors="replace")

    async def wait(self, *, within: float | None = None) -> int:
        """Wait until the program has exited, and return its exit status.

        Raises:
            DemoFailed: the program is still running after `within` seconds.
        """
        try:
            async with timeout(within):
                return await self._process.wait()
        except TIMEOUT_ERRORS:
            raise DemoFailed(f"{self.name} is still running after {within:g} s") from None

    async def end(self) -> None:
        """Terminate the program; kill it if it does not exit in time."""
        await end_process(self._process, within=END_TIMEOUT)

    def kill(self) -> None:
        """Kill the program if it is still running."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


async def end_all(children: Sequence[Child]) -> None:
    """Terminate programs in the reverse order of their start; if this is interrupted, kill them."""
    try:
        for child in reversed(children):
            await child.end()
    finally:
        for child in children:
            child.kill()


# The training script that the demo debugs, and the line numbers of code in it.


class Sample:
    """`train.py` on the developer's machine; the job runs a copy of it in another directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "train.py"
        self._lines = self.script.read_text(encoding="utf-8").splitlines()

    def line_of(self, code: str) -> int:
        """Return the number of the only line that contains `code`.

        Raises:
            DemoFailed: no line, or more than one line, contains `code`, because the sample was changed.
        """
        found = [number for number, line in enumerate(self._lines, start=1) if code in line]
        if len(found) != 1:
            raise DemoFailed(
                f"'{code}' is on {len(found)} lines of {self.script}; expected exactly one",
                hint="restore the original file",
            )
        return found[0]


def find_sample() -> Sample:
    """Return the sample of this installation: next to the packages in a checkout, next to this file in a wheel.

    Raises:
        DemoFailed: it is missing.
    """
    here = Path(__file__).resolve().parent
    for directory in (here / "plain_python", here.parents[1] / "samples" / "plain_python"):
        if (directory / "train.py").is_file():
            return Sample(directory)
    raise DemoFailed("the sample plain_python is missing from this installation", hint="reinstall relay-debug")


HYBRID_CONNECTION = "demo"
START_TIMEOUT = 30.0
"""Seconds to wait for a program to start; its imports take one or two seconds."""


class DemoEnvironment:
    """The running programs in one demo.

        async with DemoEnvironment(sample, directory, epochs=60, wait=60) as environment:
            await run_walkthrough(environment.port, sample, environment.job, print)

    Args:
        sample: The training script that the job runs.
        directory: A directory for keys, logs and the job's copy of the sample; the caller removes it.
        epochs: Number of training epochs.
        wait: Seconds that the job waits for a debugger.
        port: The preferred local port to attach to; a free port is used if this one is 0 or in use.
        chaos: Whether to put a CutProxy between the client and the relay.

    Raises:
        DemoFailed: on entering: a program does not start.
    """

    def __init__(
        self, sample: Sample, directory: Path, *, epochs: int, wait: float, port: int = 0, chaos: bool = False
    ) -> None:
        self.report: Callable[[str], None] = lambda _sentence: None
        """Receives a sentence for each program that has started."""
        self._sample = sample
        self._directory = directory
        self._epochs = epochs
        self._wait = wait
        self._variables = _environment_variables()
        self._with_chaos = chaos
        self.chaos: CutProxy | None = None
        """The proxy between client and relay, if requested."""
        self.children: list[Child] = []
        self.job: Child
        self.relay_address = self._ca_file = ""
        self.port = _free_port(port)
        """The local port that an editor attaches to."""

    async def __aenter__(self) -> DemoEnvironment:
        try:
            await self._start_relay()
            self.report(f"the relay is listening on {self.relay_address}")
            self.job = await self._start_job()
            self.report(f"the job (pid {self.job.pid}) was started, and will wait for a debugger")
            await self._start_client()
            self.report(f"relay-client is ready on port {self.port}")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        try:
            await end_all(self.children)
        finally:
            if self.chaos is not None:
                await self.chaos.__aexit__(None, None, None)

    async def watch(self) -> None:
        """Wait until the relay or the client exits.

        Raises:
            DemoFailed: one of them has exited.
        """
        needed = [child for child in self.children if child.name in {"relay", "client"}]
        await first_completed(*(_fail_on_exit(child) for child in needed))

    async def _start_relay(self) -> None:
        directory, port = self._directory / "relay", _free_port()
        init = await self._start(
            "init", "relay_server", "init", str(directory), "--hc", HYBRID_CONNECTION, "--port", str(port)
        )
        if await init.wait(within=START_TIMEOUT):
            raise DemoFailed("cannot create the relay's files")
        ready = self._directory / "ready.json"
        relay = await self._start(
            "relay", "relay_server", "serve", "--config", str(directory / "relay.toml"), "--ready-file", str(ready)
        )
        await _until(ready.exists, relay)
        serving = json.loads(ready.read_text())
        self.relay_address, self._ca_file = str(serving["address"]), str(serving["ca_file"])

    def _secret(self, role: str) -> Path:
        """Return the connection string of the agent or the client, which `relay-server init` has created."""
        return self._directory / "relay" / f"{HYBRID_CONNECTION}.{role}.connection"

    async def _start_job(self) -> Child:
        node = self._directory / "node"
        shutil.copytree(self._sample.directory, node)
        secrets = {"RELAY_CONNECTION_STRING_FILE": str(self._secret("agent")), "RELAY_CA_FILE": self._ca_file}
        debug = ["--is-debug", "true", "--debug-relay-connection-name", HYBRID_CONNECTION]
        debug += ["--debug-port", str(self.port), "--debug-wait", f"{self._wait:g}"]
        return await self._run("job", ["train.py", "--epochs", str(self._epochs), *debug], cwd=node, **secrets)

    async def _start_client(self) -> None:
        where = ["--hc", HYBRID_CONNECTION, "--ports", str(self.port)]
        if self._with_chaos:
            await self._start_chaos()
        secrets = ["--connection-string-file", str(self._secret("client")), "--ca-file", self._ca_file]
        client = await self._start("client", "relay_client", *where, *secrets)
        await _until(lambda: "relay-client: ready" in client.output(), client)

    async def _start_chaos(self) -> None:
        """Start the proxy, and put its address into the client's connection string."""
        host, _, port = self.relay_address.removeprefix("wss://").rpartition(":")
        self.chaos = await CutProxy(host, int(port)).__aenter__()
        secret = self._secret("client")
        secret.write_text(secret.read_text().replace(f"{host}:{port}", f"{host}:{self.chaos.port}"))

    async def _start(self, name: str, module: str, *arguments: str) -> Child:
        return await self._run(name, ["-m", module, *arguments], cwd=self._directory)

    async def _run(self, name: str, arguments: list[str], *, cwd: Path, **variables: str) -> Child:
        child = await Child.start(
            name, [sys.executable, *arguments], logs=self._directory, cwd=cwd, environment=self._variables | variables
        )
        self.children.append(child)
        return child


def _environment_variables() -> dict[str, str]:
    """Return this process's environment with this installation on PYTHONPATH, and without settings for other relays."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment["NO_PROXY"] = environment["no_proxy"] = "localhost,127.0.0.1"
    return environment


def _free_port(preferred: int = 0) -> int:
    """Return a free port on 127.0.0.1, if possible the preferred one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", preferred))
            return int(probe.getsockname()[1])
    return _free_port()


async def _fail_on_exit(program: Child) -> None:
    await program.wait()
    raise DemoFailed(f"the {program.name} exited too early")


async def _until(ready: Callable[[], bool], program: Child) -> None:
    try:
        async with timeout(START_TIMEOUT):
            while not ready():
                if not program.running:
                    raise DemoFailed(f"the {program.name} exited during startup")
                await asyncio.sleep(0.02)
    except TIMEOUT_ERRORS:
        raise DemoFailed(f"the {program.name} was not ready after {START_TIMEOUT:g} s") from None
