"""Four ways from a local port to the same target, each of separate processes.

    direct         the target's own port
    ssh -L         OpenSSH, if sshd is installed: a private one on loopback, with keys made for this run
    rendezvous     one websocket through the relay for each connection (tests.bench.rendezvous)
    tunnel         relay-client and relay-agent

With delays the relay has the profile `azure` of `tests.support.network.delayed_relay`: 30 ms for each of the four lanes
of a round trip, and the service's own times. The first two ways, which know no relay, then lead through a proxy that is
as far away (60 ms each way).
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.demo.environment import Child
from tests.bench.programs import Programs, lines_of
from tests.support.machine.ports import free_port

__all__ = ["Relay", "Stage", "Way", "staged"]

HC = "bench"
OLDER_HCS = ("older-1", "older-2", "older-3")
"""One for each agent of the older way: a sender would be given any of those that listen on the same."""
ONE_WAY = 0.060
"""Seconds from one end to the other: two lanes of the delay profile."""


@dataclass
class Way:
    """A local port that leads to the target, and the programs that carry it."""

    port: int
    children: dict[str, Child] = field(default_factory=dict)


@dataclass
class Relay:
    """A running relay-server and its files."""

    child: Child
    directory: Path
    port: int
    ca_file: str

    def connection_file(self, role: str, hc: str = HC) -> str:
        """Return the connection string file of `agent` or `client`."""
        return str(self.directory / f"{hc}.{role}.connection")

    def connection_file_by(self, port: int, role: str) -> str:
        """Return a copy that leads to another port: a proxy's."""
        path = self.directory / f"{role}.{port}.connection"
        path.touch(mode=0o600)
        path.write_text(Path(self.connection_file(role)).read_text().replace(f":{self.port};", f":{port};"))
        return str(path)


class Stage:
    """The programs of one run; ways are made when a figure asks for them."""

    def __init__(self, programs: Programs, *, delays: bool) -> None:
        self.programs = programs
        self.delays = delays
        self.skipped: dict[str, str] = {}
        """Ways that cannot be had, and why."""
        self.relay: Relay
        self.target_port = 0
        self._ways: dict[str, Way] = {}
        self._makers = {
            "direct": self._direct,
            "ssh -L": self._ssh,
            "rendezvous": self._rendezvous,
            "tunnel": self._tunnel,
        }
        self._older_hcs = iter(OLDER_HCS)

    async def start(self) -> None:
        """Start the relay and the target."""
        self.relay = await self.start_relay()
        target = await self.programs.python("target", "tests.bench.target")
        self.target_port = int(await lines_of(target))

    async def ways(self, *wanted: str) -> dict[str, Way]:
        """Return ways by name, without those that cannot be had."""
        wanted = wanted or tuple(self._makers)
        missing = [name for name in wanted if name not in self._ways and name not in self.skipped]
        if missing:
            self._ways |= await self.ways_to(self.target_port, *missing)
        return {name: self._ways[name] for name in wanted if name in self._ways}

    async def ways_to(self, port: int, *wanted: str) -> dict[str, Way]:
        """Return new ways to another program of this machine: all, or those that are wanted."""
        made = {name: await self._makers[name](port) for name in wanted or self._makers}
        return {name: way for name, way in made.items() if way.port}

    async def start_relay(self, *options: str, hc: str = HC, profile: str = "azure") -> Relay:
        """Run `relay-server init` for a hybrid connection or family, and `serve` with options."""
        directory, port = self.programs.directory / f"relay-{free_port()}", free_port()
        init = await self.programs.python(
            "init", "relay_server", "init", str(directory), "--hc", hc, *OLDER_HCS, "--port", str(port)
        )
        assert not await init.wait(within=60), init.output()
        child = await self.serve_relay(directory, *options, profile=profile)
        return Relay(child, directory, port, json.loads((directory / "ready.json").read_text())["ca_file"])

    async def serve_relay(self, directory: Path, *options: str, profile: str = "azure") -> Child:
        """Run `relay-server serve` with the configuration of a directory, and return when it is ready.

        Only a stage with delays has their profile; `azure-tail` is one of any stage.
        """
        is_delayed = self.delays or profile != "azure"
        program = ["tests.support.network.delayed_relay", profile] if is_delayed else ["relay_server"]
        config = ["--config", str(directory / "relay.toml"), "--ready-file", str(directory / "ready.json")]
        child = await self.programs.python("relay", *program, "serve", *config, *options)
        await lines_of(child, lambda text: "ready on" in text)
        return child

    async def start_agent(self, ports: dict[int, int]) -> Child:
        """Run `relay-agent serve` for logical ports and what they stand for."""
        child = await self.begin_agent(ports)
        await lines_of(child, lambda text: "listening on" in text)
        return child

    async def begin_agent(self, ports: dict[int, int]) -> Child:
        """Run `relay-agent serve` without waiting until it listens."""
        offers = [text for logical, local in ports.items() for text in ("--port", f"{logical}:{local}")]
        return await self.programs.python("agent", "relay_agent", "serve", *self.agent_access(), *offers)

    def agent_access(self) -> list[str]:
        """Return the options by which an agent reaches the relay."""
        secrets = ["--connection-string-file", self.relay.connection_file("agent"), "--ca-file", self.relay.ca_file]
        return ["--hc", HC, *secrets]

    async def start_client(self, ports: str, connection_file: str | None = None) -> Child:
        """Run `relay-client` for some ports."""
        child = await self.begin_client("--ports", ports, connection_file=connection_file)
        await lines_of(child, lambda text: "ready on" in text)
        return child

    async def begin_client(self, *arguments: str, connection_file: str | None = None) -> Child:
        """Run `relay-client` with some arguments, without waiting for anything."""
        file = connection_file or self.relay.connection_file("client")
        secrets = ["--hc", HC, "--connection-string-file", file, "--ca-file", self.relay.ca_file]
        return await self.programs.python("client", "relay_client", *arguments, *secrets)

    async def _direct(self, port: int) -> Way:
        if not self.delays:
            return Way(port)
        proxy = await self.programs.python(
            "far", "tests.support.network.chaos", "--to", f"127.0.0.1:{port}", "--latency", str(ONE_WAY)
        )
        line = await lines_of(proxy, lambda text: "listening on" in text)
        (listening,) = re.findall(r"127\.0\.0\.1:(\d+), ", line)
        return Way(int(listening))

    async def _tunnel(self, port: int) -> Way:
        logical = free_port()
        agent = await self.start_agent({logical: port})
        client = await self.start_client(str(logical))
        return Way(logical, {"client": client, "relay": self.relay.child, "agent": agent})

    async def _rendezvous(self, port: int) -> Way:
        ends, hc = [], next(self._older_hcs)
        for role in ("agent", "client"):
            where = (self.relay.connection_file(role, hc), self.relay.ca_file, str(port))
            ends.append(await self.programs.python(f"older-{role}", "tests.bench.rendezvous", role, *where))
        agent, client = ends
        await lines_of(agent, lambda text: "listening" in text)
        return Way(int(await lines_of(client)), {"client": client, "relay": self.relay.child, "agent": agent})

    async def _ssh(self, port: int) -> Way:
        reason = why_no_ssh()
        if reason:
            self.skipped["ssh -L"] = reason
            return Way(0)
        server_port, local = free_port(), free_port()
        directory = self.programs.directory / f"ssh-{server_port}"
        sshd = await self.programs.start("sshd", *await self._sshd_command(directory, server_port))
        await lines_of(sshd, lambda text: "Server listening" in text)
        way = await self._direct(server_port)
        options = [f"-oUserKnownHostsFile={directory}/known", "-oStrictHostKeyChecking=no", "-oIdentitiesOnly=yes"]
        options += ["-oExitOnForwardFailure=yes", "-oBatchMode=yes", "-F", "none", "-v", "-N"]
        ssh = await self.programs.start(
            "ssh",
            *("ssh", "-i", str(directory / "user"), "-p", str(way.port), *options),
            *("-L", f"127.0.0.1:{local}:127.0.0.1:{port}", f"{getpass.getuser()}@127.0.0.1"),
        )
        await lines_of(ssh, lambda text: "Entering interactive session" in text)
        return Way(local, {"client": ssh, "agent": sshd})

    async def _sshd_command(self, directory: Path, port: int) -> list[str]:
        """Make throw-away keys, and return a command that serves this user with them, in the foreground."""
        directory.mkdir(mode=0o700)  # noqa: ASYNC240 - nothing else runs yet
        for name in ("host", "user"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            await (await self.programs.start("keygen", *keygen)).wait(within=60)
        settings = {
            "ListenAddress": "127.0.0.1",
            "HostKey": directory / "host",
            "AuthorizedKeysFile": directory / "user.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }
        options = [f"-o{name}={value}" for name, value in settings.items()]
        return [str(_sshd()), "-D", "-e", "-f", os.devnull, "-p", str(port), *options]


def why_no_ssh() -> str:
    """Return why `ssh -L` cannot be measured here, or ""."""
    if _sshd() is None:
        return "sshd is not installed (package openssh-server)"
    if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
        return "sshd run by root needs the directory /run/sshd"
    return ""


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextlib.asynccontextmanager
async def staged(*, delays: bool) -> AsyncIterator[Stage]:
    """Run a relay and a target for a block."""
    with TemporaryDirectory(prefix="relay-bench-", ignore_cleanup_errors=True) as directory:
        async with Programs(Path(directory)) as programs:
            stage = Stage(programs, delays=delays)
            await stage.start()
            yield stage
