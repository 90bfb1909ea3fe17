"""Environment of the demo: a relay, a training job with its agent, and relay-client, in a temporary directory.

The three programs are the actual ones, started as a user would start them. The job runs a copy of the sample in a
separate directory, as it would on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from relay_client.demo.chaos import ChaosProxy
from relay_client.demo.checks import DemoFailed
from relay_client.demo.process import Child
from relay_client.demo.sample import Sample
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.net.tasks import first_completed

__all__ = ["HYBRID_CONNECTION", "DemoEnvironment"]

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
        chaos: Whether to put a ChaosProxy between the client and the relay.

    Raises:
        DemoFailed: on entering: a program does not start.
    """

    def __init__(
        self, sample: Sample, directory: Path, *, epochs: int, wait: float, port: int = 0, chaos: bool = False
    ) -> None:
        self._sample = sample
        self._directory = directory
        self._epochs = epochs
        self._wait = wait
        self._variables = _environment_variables()
        self._with_chaos = chaos
        self.chaos: ChaosProxy | None = None
        """The proxy between client and relay, if requested."""
        self.children: list[Child] = []
        self.job: Child
        self.relay_address = ""
        self.port = _free_port(port)
        """The local port that an editor attaches to."""

    def __repr__(self) -> str:
        return f"<DemoEnvironment port={self.port} {self.children}>"

    async def __aenter__(self) -> DemoEnvironment:
        try:
            files = await self._start_relay()
            self.job = await self._start_job(files)
            await self._start_client(files)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Terminate the programs in the reverse order of their start; if this is interrupted, kill them."""
        try:
            for child in reversed(self.children):
                await child.end()
        finally:
            for child in self.children:
                child.kill()
            if self.chaos is not None:
                await self.chaos.__aexit__(None, None, None)

    async def watch(self, until: asyncio.Event) -> None:
        """Return when the event is set.

        Raises:
            DemoFailed: the relay or the client exited before the event was set.
        """
        needed = [child for child in self.children if child.name in {"relay", "client"}]
        await first_completed(until.wait(), *(_fail_on_exit(child) for child in needed))

    async def _start_relay(self) -> _Files:
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
        self.relay_address = str(serving["address"])
        return _Files(directory, str(serving["ca_file"]))

    async def _start_job(self, files: _Files) -> Child:
        node = self._directory / "node"
        shutil.copytree(self._sample.directory, node)
        secrets = {"RELAY_CONNECTION_STRING_FILE": files.agent_secret, "RELAY_CA_FILE": files.ca_file}
        debug = ["--is-debug", "true", "--debug-relay-connection-name", HYBRID_CONNECTION]
        debug += ["--debug-port", str(self.port), "--debug-wait", f"{self._wait:g}"]
        return await self._run("job", ["train.py", "--epochs", str(self._epochs), *debug], cwd=node, **secrets)

    async def _start_client(self, files: _Files) -> None:
        where = ["--hc", HYBRID_CONNECTION, "--ports", str(self.port)]
        if self._with_chaos:
            await self._start_chaos(files)
        secrets = ["--connection-string-file", files.client_secret, "--ca-file", files.ca_file]
        client = await self._start("client", "relay_client", *where, *secrets)
        await _until(lambda: "relay-client: ready" in client.output(), client)

    async def _start_chaos(self, files: _Files) -> None:
        """Start the proxy, and put its address into the client's connection string."""
        host, _, port = self.relay_address.removeprefix("wss://").rpartition(":")
        self.chaos = await ChaosProxy(host, int(port)).__aenter__()
        files.change_client_address(f"{host}:{port}", f"{host}:{self.chaos.port}")

    async def _start(self, name: str, module: str, *arguments: str) -> Child:
        return await self._run(name, ["-m", module, *arguments], cwd=self._directory)

    async def _run(self, name: str, arguments: list[str], *, cwd: Path, **variables: str) -> Child:
        child = await Child.start(
            name,
            [sys.executable, *arguments],
            logs=self._directory,
            cwd=cwd,
            environment=self._variables | variables,
        )
        self.children.append(child)
        return child


class _Files:
    """Paths of the connection strings and the CA certificate, created by `relay-server init` and `serve`."""

    def __init__(self, directory: Path, ca_file: str) -> None:
        self.agent_secret = str(directory / f"{HYBRID_CONNECTION}.agent.connection")
        self.client_secret = str(directory / f"{HYBRID_CONNECTION}.client.connection")
        self.ca_file = ca_file

    def change_client_address(self, before: str, after: str) -> None:
        """Replace the relay's address in the client's connection string."""
        secret = Path(self.client_secret)
        secret.write_text(secret.read_text().replace(before, after))


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
