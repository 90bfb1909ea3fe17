"""Facts about a debug session that stands at a breakpoint while everything between it and the job goes wrong."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay_agent.agent.port_targets import PortTarget
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.hyco import listener as listener_rules
from relay_core.hyco.address import Endpoint
from relay_server.config.model import Limits, TlsSettings
from tests.support.debuggers.debuggee import LINE, debuggee, stopped_at_breakpoint
from tests.support.editors.stopped import Stopped
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program
from tests.support.machine.secrets import new_key
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import HC, LocalRelay, local_relay, recycle_listeners
from tests.support.network.tunnel import QUICK, running_agent

pytestmark = pytest.mark.e2e


@dataclass
class Scene:
    """A debug session at its breakpoint, and what it stands on."""

    session: Stopped
    relay: LocalRelay
    chaos: ChaosProxy

    async def check_and_step(self, line: int) -> None:
        """Assert that the job stands where it stood, and that one step leads to `line`."""
        assert await self.session.value("number") == "7"
        assert line == await self.session.step()
        assert await self.session.value("number") == "7"


@contextlib.asynccontextmanager
async def at_breakpoint(relay: LocalRelay, directory: Path, *, lifetime: int = 3600) -> AsyncIterator[Scene]:
    """Stop a real program at a breakpoint, through agent, relay, a bad network and client."""
    key, port = os.urandom(32), free_port()
    listener = SasKeyCredential("listen", relay.listen_key, lifetime=lifetime)
    async with (
        debuggee(directory) as (_, target_port, script),
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        Tunnels(
            Endpoint("localhost", chaos.port, HC), relay.sender, relay.tls, tunnel_key=key, settings=QUICK
        ) as tunnels,
        Forwarder(tunnels, [port]),
        running_agent(relay, {port: PortTarget(port, target_port, dap_only=True)}, tunnel_key=key, credential=listener),
        stopped_at_breakpoint(port, script) as session,
    ):
        yield Scene(session, relay, chaos)


async def test_the_relay_is_restarted(relay: LocalRelay, tmp_path: Path) -> None:
    """Stepping continues after relay-server was stopped and started again, and after it was killed."""
    async with at_breakpoint(relay, tmp_path) as scene:
        await relay.server.stop()
        await relay.server.start()
        await scene.check_and_step(LINE + 1)
        await relay.server.kill()
        await relay.server.start()
        await scene.check_and_step(LINE - 2)


async def test_certificate_and_keys_are_replaced(relay: LocalRelay, tmp_path: Path) -> None:
    """Stepping continues over the same connections after the relay has loaded another certificate and other keys."""
    async with at_breakpoint(relay, tmp_path) as scene:
        before, ca_file = scene.chaos.connections, relay.server.ca_file
        rules = tuple(dataclasses.replace(rule, primary_key=new_key()) for rule in relay.server.config.rules)
        tls = TlsSettings(directory=tmp_path / "tls")
        relay.server.reload(dataclasses.replace(relay.server.config, rules=rules, tls=tls))
        assert ca_file != relay.server.ca_file
        await scene.check_and_step(LINE + 1)
        assert before == scene.chaos.connections


@pytest.mark.parametrize("lane", ["up", "down"])
async def test_bytes_vanish_one_way(relay: LocalRelay, tmp_path: Path, lane: str) -> None:
    """Stepping continues after bytes vanished in one direction while the sockets stayed open."""
    async with at_breakpoint(relay, tmp_path) as scene:
        before = scene.chaos.connections
        getattr(scene.chaos, lane).blackhole = True
        while scene.chaos.connections == before:  # client and agent must notice the loss on their own
            await asyncio.sleep(0.02)
        getattr(scene.chaos, lane).blackhole = False
        await scene.check_and_step(LINE + 1)


async def test_the_listener_is_recycled(relay: LocalRelay, tmp_path: Path) -> None:
    """Stepping continues after the control channel was closed with 1011, as Azure does every day."""
    async with at_breakpoint(relay, tmp_path) as scene:
        before = scene.chaos.connections
        recycle_listeners(relay.server)
        while scene.chaos.connections == before:
            await asyncio.sleep(0.02)
        await scene.check_and_step(LINE + 1)


async def test_tokens_expire(tls_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stepping continues, over a new connection too, after several lifetimes of the agent's token."""
    monkeypatch.setattr(listener_rules, "MIN_RENEW_DELAY", 0.1)
    async with (
        local_relay(tls_directory, limits=Limits(token_expiry_grace=0)) as relay,
        at_breakpoint(relay, tmp_path, lifetime=2) as scene,
    ):
        expired = time.monotonic() + 5
        while time.monotonic() < expired:
            assert await scene.session.value("number") == "7"
        scene.chaos.cut()
        await scene.check_and_step(LINE + 1)


async def test_the_client_sleeps(relay: LocalRelay, tmp_path: Path) -> None:
    """Stepping continues after relay-client was stopped for longer than the dead timer, as by a closed lid."""
    key, port = os.urandom(32), free_port()
    tunnel_key = b64encode(key).decode()
    timers = {"RELAY_PING_AFTER": "0.5", "RELAY_DEAD_AFTER": "1.5", "RELAY_CA_FILE": str(relay.ca_file)}

    def environment(rule: str) -> dict[str, str]:
        return {**timers, "RELAY_CONNECTION_STRING": f"{relay.connection_string(rule)};TunnelKey={tunnel_key}"}

    async with debuggee(tmp_path) as (_, target_port, script):
        serve = ["serve", "--port", f"{port}:{target_port}", "--dap"]
        async with (
            program("relay_agent", *serve, env=environment("listen")) as agent,
            program("relay_client", "--ports", str(port), env=environment("send")) as client,
        ):
            await agent.line("listening on")
            await client.line("ready")
            async with stopped_at_breakpoint(port, script) as session:
                client.process.send_signal(signal.SIGSTOP)
                try:
                    assert "lost the transport to" in await agent.line("lost the transport to")
                finally:
                    client.process.send_signal(signal.SIGCONT)
                assert await session.value("number") == "7"
                assert LINE + 1 == await session.step()
                await client.line(": connected, round trip")
