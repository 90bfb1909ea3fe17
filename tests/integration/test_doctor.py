"""Facts about what the doctors check at the relay, the agent, the target and the editor, each failure provoked."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_agent.cli.doctor import ListeningChecks
from relay_core.access_settings import AccessSettings
from relay_core.auth import Access, find_access
from relay_core.diagnosis.checks import Examination, Status
from relay_core.hyco.sas import mint
from relay_core.net.hybrid.listener import HybridConnectionListener
from relay_server.config.model import Limits
from tests.support.azure.entra import RELAY
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import Azure
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import node_of
from tests.support.network.relay import HC, LocalRelay, local_relay
from tests.support.systems.doctor import configure, examined_client, examined_node, failure, finding, use


@pytest.fixture
def configured(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> LocalRelay:
    """The relay of this machine, which both doctors find in the environment."""
    return configure(monkeypatch, relay)


# The relay's decision


async def test_an_expired_token(tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature that has expired is found without asking the relay."""
    expired = mint(
        configured.endpoint.audience, key_name="send", key=configured.send_key, expires_at=int(time.time()) - 720
    )
    use(
        monkeypatch,
        f"Endpoint=sb://localhost:{configured.server.port};SharedAccessSignature={expired};EntityPath={HC}",
    )
    failed = failure(await examined_client(tmp_path))
    assert ("token", "the token expired 12 min ago (signature of rule 'send')", 4) == (
        failed.check,
        failed.finding,
        failed.exit_code,
    )


async def test_a_client_with_the_agents_key(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with the right Listen cannot send."""
    use(monkeypatch, configured.connection_string("listen"))
    failed = failure(await examined_client(tmp_path))
    assert ("Send right", 4) == (failed.check, failed.exit_code)
    assert "'Send' claim is required" in failed.finding
    assert "use a key with the Send right" in failed.hint


async def test_an_agent_with_the_clients_key(configured: LocalRelay) -> None:
    """A key with the right Send cannot listen."""
    failed = failure(await examined_node())
    assert ("Listen right", 4) == (failed.check, failed.exit_code)
    assert "'Listen' claim is required" in failed.finding


@pytest.mark.parametrize("rule", ["send", "listen"])
async def test_a_missing_hybrid_connection(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """A hybrid connection that does not exist is distinguished from one without a listener, on both sides."""
    use(monkeypatch, configured.connection_string(rule, hc="nohc"))
    failed = failure(await examined_client(tmp_path) if rule == "send" else await examined_node())
    assert ("hybrid connection", "the namespace localhost has no hybrid connection 'nohc'", 5) == (
        failed.check,
        failed.finding,
        failed.exit_code,
    )
    assert "az relay hyco create" in failed.hint


async def test_a_hybrid_connection_without_room(
    tls_directory: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent cannot join a hybrid connection that has as many listeners as the relay allows."""
    async with local_relay(tls_directory, limits=Limits(max_listeners=1)) as relay, listening(relay):
        use(monkeypatch, relay.connection_string("listen"))
        failed = failure(await examined_node())
    assert ("listener", 11) == (failed.check, failed.exit_code)
    assert "already has as many listeners as the relay allows" in failed.finding


@contextlib.asynccontextmanager
async def listening(relay: LocalRelay) -> AsyncIterator[HybridConnectionListener]:
    """Run a listener that never accepts."""
    up = asyncio.Event()
    async with HybridConnectionListener(
        relay.endpoint, relay.listener, tls=relay.tls, on_state=lambda *_: up.set()
    ) as listener:
        await asyncio.wait_for(up.wait(), DEADLINE)
        yield listener


async def test_nobody_listens(tmp_path: Path, configured: LocalRelay) -> None:
    """Without an agent, the failure is the missing listener, with what to do in the job; the clock is correct."""
    found = await examined_client(tmp_path)
    failed = failure(found)
    assert ("listener", "no agent is listening on 'myhc' (namespace localhost)", 9) == (
        failed.check,
        failed.finding,
        failed.exit_code,
    )
    assert "start the job with --is-debug true" in failed.hint
    assert (Status.PASSED, "'myhc' exists") == finding(found, "hybrid connection")
    assert Status.PASSED is finding(found, "clock")[0]


# The agent


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (b"x" * 32, "client and agent have different tunnel keys"),
        (b"", "the agent has a tunnel key but the client has none"),
    ],
)
async def test_another_tunnel_key(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch, key: bytes, sentence: str
) -> None:
    """Tunnel keys that differ, or that only one side has, are distinguished."""
    use(monkeypatch, configured.connection_string("send"), key=key)
    async with node_of(configured, free_port()):
        failed = failure(await examined_client(tmp_path))
    assert ("tunnel key", sentence, 3) == (failed.check, failed.finding, failed.exit_code)


async def test_an_agent_without_targets(tmp_path: Path, configured: LocalRelay) -> None:
    """An agent that serves nothing leaves nothing to attach to."""
    async with node_of(configured):
        failed = failure(await examined_client(tmp_path))
    assert ("target", "no process is registered", 9) == (failed.check, failed.finding, failed.exit_code)


async def test_a_missing_rank(tmp_path: Path, configured: LocalRelay) -> None:
    """The ranks that are wanted and not registered are listed."""
    async with node_of(configured, free_port(), rank=0):
        failed = failure(await examined_client(tmp_path, ranks=[0, 1, 2]))
    assert ("target", "ranks 1-2 are not registered") == (failed.check, failed.finding)


async def test_everything_is_in_order(tmp_path: Path, configured: LocalRelay) -> None:
    """With a running job nothing fails, and the agent and the process are named."""
    port = free_port()
    async with node_of(configured, port, fields={"host": "node-0", "node_rank": 0}, rank=0):
        found = await examined_client(tmp_path)
    assert [] == [each for each in found.results if each.status is Status.FAILED]
    assert (Status.PASSED, f"rank 0 on port {port}") == finding(found, "target")
    assert "node-0/" in finding(found, "agent")[1]
    assert Status.PASSED is finding(found, "tunnel key")[0]


async def test_the_editor_is_checked_against_the_registered_ports(tmp_path: Path, configured: LocalRelay) -> None:
    """A rank without a configuration in launch.json is a failure."""
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "launch.json").write_text('{"configurations": []}')
    port = free_port()
    async with node_of(configured, port, rank=0):
        failed = failure(await examined_client(tmp_path))
    assert ("editor", f".vscode/launch.json: no configuration attaches to port {port}", 3) == (
        failed.check,
        failed.finding,
        failed.exit_code,
    )


# The node


async def test_a_node_in_order(configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that can listen passes, also without a client."""
    use(monkeypatch, configured.connection_string("listen"))
    found = await examined_node()
    assert 0 == found.exit_code
    assert (Status.PASSED, "the relay accepts the token for listening") == finding(found, "Listen right")
    assert (Status.PASSED, "debugpy 1.8.22") == finding(found, "debugpy")


async def test_the_settings_of_a_job_are_used(configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the hybrid connection may come from the variables that `relay-agent run` sets."""
    use(monkeypatch, configured.connection_string("listen", hc=None))
    monkeypatch.setenv("RELAY_DEBUG_HC", HC)
    assert 0 == (await examined_node()).exit_code


async def test_a_client_is_not_lost_to_the_doctor(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the doctor of a node listens, clients still reach the agent, and none is accepted by the doctor."""
    port = free_port()
    use(monkeypatch, configured.connection_string("listen"))
    async with node_of(configured, port, rank=0):
        access = await find_access(AccessSettings(), side="agent", tls=configured.tls)
        examined = asyncio.ensure_future(listen_repeatedly(access, configured.tls, 10))
        use(monkeypatch, configured.connection_string("send"))
        while not examined.done():
            found = await examined_client(tmp_path)
            assert (Status.PASSED, f"rank 0 on port {port}") == finding(found, "target"), str(
                [(each.check, each.status.name, each.finding) for each in found.results[6:]]
            )
        assert [0] * 10 == await examined


async def listen_repeatedly(access: Access, tls: ssl.SSLContext, times: int) -> list[int]:
    """Run the checks that listen several times, and return their exit codes."""
    found = []
    for _ in range(times):
        examination = Examination()
        await ListeningChecks(access, tls).run(examination)
        found.append(examination.exit_code)
    return found


# Entra ID


async def test_an_identity_without_the_role(
    tmp_path: Path, cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A managed identity with a token but without the role Listener is refused by the relay."""
    monkeypatch.setenv("RELAY_NAMESPACE", "contoso")
    monkeypatch.setenv("RELAY_DEBUG_HC", HC)
    cloud.issuer.roles[RELAY] = []
    found = await examined_node()
    assert Status.PASSED is finding(found, "token")[0]
    assert "managed identity: token, valid for" in finding(found, "token")[1]
    failed = failure(found)
    assert ("Listen right", 4) == (failed.check, failed.exit_code)
    assert "with Entra ID, assign the role Azure Relay Listener" in failed.hint
