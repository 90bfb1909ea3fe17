"""Facts about a role of Entra ID that takes effect only minutes after it was assigned."""

import asyncio
import logging

import pytest

from relay_agent.agent.agent import Agent
from relay_client.agents.tunnels import Tunnels
from relay_client.cli import make_parser
from relay_client.cli.forward import forward
from relay_core.access_settings import AccessSettings
from relay_core.auth import find_access
from relay_core.auth.entra import EntraCredential
from relay_core.auth.find_access import Access
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.compat import timeout
from relay_core.errors import RelayDebugError, Unauthorized
from relay_core.hyco.backoff import ROLE_PROPAGATION
from relay_core.net.hybrid.listener import HybridConnectionListener
from relay_core.net.tasks import TaskSet
from tests.support.azure.entra import LISTENER, RELAY, SENDER
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import HC, Azure
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port

OPTIONS = make_parser().parse_args([])
FROM_ENTRA = AccessSettings(hc=HC, namespace="contoso")


def use(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def tunnels_of(access: Access, cloud: Azure) -> Tunnels:
    """Return the tunnels of a client that has found its credentials."""
    return Tunnels(access.endpoint, access.credential, cloud.tls, tunnel_key=bytes(32))


async def test_the_wrong_role_at_the_relay(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """A sender's role does not let an agent listen: it gives up when a new role would have taken effect."""
    cloud.issuer.roles[RELAY] = [SENDER]
    access = await find_access(FROM_ENTRA, side="agent", tls=cloud.tls)
    assert isinstance(access.credential, EntraCredential)
    assert ROLE_PROPAGATION == access.credential.role_grace
    access.credential.role_grace = 1.0
    with pytest.raises(Unauthorized, match="'Listen' claim is required.*; still refused after 5 minutes"):
        async with HybridConnectionListener(access.endpoint, access.credential, tls=cloud.tls) as listener:
            async for _ in listener:
                pass
    assert len(identity.requests) > 1


async def test_a_role_that_arrives_in_time(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """The token after a refusal is a new one: with the role in it, the agent listens."""
    cloud.issuer.roles[RELAY] = []
    access = await find_access(FROM_ENTRA, side="agent", tls=cloud.tls)
    up = asyncio.Event()

    def on_state(_state: object, error: RelayDebugError | None) -> None:
        cloud.issuer.roles[RELAY] = [LISTENER]
        if error is None:
            up.set()

    async with HybridConnectionListener(access.endpoint, access.credential, tls=cloud.tls, on_state=on_state):
        await asyncio.wait_for(up.wait(), DEADLINE)
    assert 2 == len(identity.requests)


async def test_a_role_that_takes_a_while(
    cloud: Azure, identity: FakeManagedIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that is refused several times listens without a restart once its role counts; its log has one hint."""
    cloud.issuer.roles[RELAY] = []
    access = await find_access(FROM_ENTRA, side="agent", tls=cloud.tls)
    up = asyncio.Event()
    agent = Agent(access.endpoint, access.credential, {}, tunnel_key=bytes(32), tls=cloud.tls, on_listening=up.set)
    async with TaskSet() as tasks:
        tasks.spawn(agent.run(), name="agent")
        async with timeout(DEADLINE):
            while len(identity.requests) < 5:
                await asyncio.sleep(0.01)
            cloud.issuer.roles[RELAY] = [LISTENER]
            await up.wait()
        assert 1 == cloud.relay.metrics().active_listeners
    hint = "hint: a new role assignment takes up to 5 minutes to take effect; retrying until "
    assert 1 == len([line for line in caplog.messages if hint in line])
    assert not [line for line in caplog.messages if "retrying" in line and hint not in line]


async def test_a_client_waits_for_its_role(
    cloud: Azure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused `relay-client --ports` is ready without a restart once its role counts; its log has one hint."""
    use(monkeypatch, cloud.entra.principal())
    cloud.issuer.roles[RELAY] = []
    access = await find_access(FROM_ENTRA, side="client", tls=cloud.tls)
    caplog.set_level(logging.INFO, "relay_client")
    async with TaskSet() as tasks:
        forwarding = tasks.spawn(forward(tunnels_of(access, cloud), [free_port()], OPTIONS), name="forward")
        async with timeout(DEADLINE):
            while len(cloud.entra.requests) < 5:
                await asyncio.sleep(0.01)
            assert "ready on" not in caplog.text
            cloud.issuer.roles[RELAY] = [SENDER]
            while "ready on" not in caplog.text:
                assert not forwarding.done()
                await asyncio.sleep(0.01)
    hint = "hint: a new role assignment takes up to 5 minutes to take effect; retrying until "
    assert 1 == len([line for line in caplog.messages if hint in line])


async def test_a_single_look_does_not_wait_for_a_role(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command such as `relay-client targets` fails at the first refusal, and its hint states how long roles take."""
    use(monkeypatch, cloud.entra.principal())
    cloud.issuer.roles[RELAY] = []
    access = await find_access(FROM_ENTRA, side="client", tls=cloud.tls)
    async with tunnels_of(access, cloud) as client:
        with pytest.raises(Unauthorized, match="Sender, which takes up to 5 minutes to take effect"):
            await client.discover_all()
    assert 1 == len(cloud.entra.requests)


async def test_a_client_whose_role_does_not_come(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """`relay-client --ports` ends with the relay's reason, the role's name, and how long it has tried."""
    use(monkeypatch, cloud.entra.principal())
    cloud.issuer.roles[RELAY] = []
    access = await find_access(FROM_ENTRA, side="client", tls=cloud.tls)
    assert isinstance(access.credential, EntraCredential)
    access.credential.role_grace = 1.0
    with pytest.raises(Unauthorized, match="still refused after 5 minutes.*the role Azure Relay Sender"):
        await forward(tunnels_of(access, cloud), [free_port()], OPTIONS)


async def test_a_client_with_a_wrong_key_does_not_wait(cloud: Azure) -> None:
    """A key has no role that could be new: `relay-client --ports` ends with the first refusal."""
    access = Access(cloud.endpoint, SasKeyCredential("send", secrets.new_key()), None, "a test")
    with pytest.raises(Unauthorized, match=r"\(401\)") as caught:
        await forward(tunnels_of(access, cloud), [free_port()], OPTIONS)
    assert "still so" not in str(caught.value)
