"""A relay, jobs and relay-clients for pictures, started as users start them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from relay_client.dap import DapClient
from tests.pictures.namespaces import HOME, VENV, on_host
from tests.support.jobs.processes import ROOT
from tests.support.jobs.running import access
from tests.support.jobs.torch_job import end_families, show_logs
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import Program, environment, program, run
from tests.support.machine.secrets import new_key
from tests.support.network.relay import HC, LocalRelay, local_relay

__all__ = ["PORTS", "Stage", "staged", "stopped"]

PORT = 5678
"""Of rank 0."""
RANKS = 4
PORTS = f"{PORT}-{PORT + RANKS - 1}"
STEPS = str(10**9)
PYTHON = f"{VENV}/bin/python"
JOB = Path(HOME) / "job"
"""The working directory of all ranks."""


class Stage:
    """A running relay.

    Args:
        relay: The relay.
        directory: For the files of jobs and clients.
    """

    def __init__(self, relay: LocalRelay, directory: Path) -> None:
        self.relay = relay
        self.directory = directory
        self._tunnel_key = new_key()

    def client_environment(self) -> dict[str, str]:
        """Return the variables of relay-client."""
        folder = self.directory / "relay-clients"  # that of `running_editor`
        return {**self._access(self.directory, "send"), "RELAY_CLIENT_DIR": str(folder)}

    @contextlib.asynccontextmanager
    async def job(self, script: str, *options: str, nodes: int = 1) -> AsyncIterator[Path]:
        """Run train.py under torchrun, and yield its directory once all ranks are registered.

        Args:
            script: The text of train.py.
            options: Of `relay-agent run`.
            nodes: How many hosts share the ranks.
        """
        write_job(script)
        launchers: list[asyncio.subprocess.Process] = []
        try:
            for node in range(nodes):
                launchers.append(await self._start(node, nodes, options))  # noqa: PERF401 - each is ended below
            waited = await run(
                "relay_client", "--hc", HC, "wait", "--ranks", f"0-{RANKS - 1}", env=self.client_environment()
            )
            assert waited.status == 0, waited.stderr
            yield JOB
        except BaseException:
            show_logs(self.directory)
            raise
        finally:
            await end_families(launchers)
            shutil.rmtree(JOB)

    async def _start(self, node: int, nodes: int, options: tuple[str, ...]) -> asyncio.subprocess.Process:
        folder = self.directory / f"node-{node}"
        folder.mkdir()
        agent = [PYTHON, "-m", "relay_agent", "run", "--hc", HC, "--port", str(PORT)]
        torchrun = [PYTHON, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--node-rank", str(node)]
        torchrun += ["--nproc-per-node", str(RANKS // nodes), "--rdzv-backend", "c10d", "--rdzv-id", "train"]
        torchrun += ["--rdzv-endpoint", "127.0.0.1:29500", "--local-addr", "127.0.0.1", "train.py", "--steps", STEPS]
        variables = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
        with (self.directory / f"log-{node}").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *on_host(f"node-{node}", ["nice", *agent, *options, "--", *torchrun]),
                cwd=JOB,
                env=environment(**variables, **self._access(folder, "listen")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _access(self, folder: Path, rule: str) -> dict[str, str]:
        return access(self.relay, folder, rule, RELAY_TUNNEL_KEY=self._tunnel_key)

    @contextlib.asynccontextmanager
    async def client(self, *options: str) -> AsyncIterator[Program]:
        """Run a relay-client."""
        async with program("relay_client", "--hc", HC, *options, env=self.client_environment()) as running:
            await running.line("ready on")
            yield running


def write_job(script: str) -> None:
    """Write the job's directory: train.py, a file without a height and a FIFO."""
    JOB.mkdir()
    (JOB / "train.py").write_text(script)
    (JOB / "invalid").write_text("width 0.5\n")
    os.mkfifo(JOB / "fifo")


@contextlib.asynccontextmanager
async def stopped(folder: Path, rank: int, line: int, condition: str) -> AsyncIterator[None]:
    """Let an editor stop a rank, which waits for it, at a conditional breakpoint for a block."""
    async with await DapClient.connect("127.0.0.1", PORT + rank, within=DEADLINE) as editor:
        wanted = {str(folder / "train.py"): [{"line": line, "condition": condition}]}
        mapping = {"localRoot": str(folder), "remoteRoot": "."}
        await editor.attach(wanted, within=DEADLINE, pathMappings=[mapping])
        thread = (await editor.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
        await editor.request("stackTrace", {"threadId": thread, "levels": 1}, within=DEADLINE)
        yield


@contextlib.asynccontextmanager
async def staged(directory: Path) -> AsyncIterator[Stage]:
    """Run a relay for a block."""
    async with local_relay(directory / "tls", port=443) as relay:
        yield Stage(relay, directory)
