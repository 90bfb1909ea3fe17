"""Facts about every way to a credential, with the real SDK, a real relay and the services it would meet in Azure."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_core.access_settings import AccessSettings
from relay_core.auth import azure_sdk
from relay_core.auth.entra import TokenSource
from relay_core.auth.find_access import Search, explain_access, find_access
from relay_core.auth.identity import IDENTITIES, choose_identities
from relay_core.compat import timeout
from relay_core.errors import (
    ConfigurationError,
    RelayDebugError,
    RelayUnreachable,
    Unauthorized,
    UntrustedCertificate,
)
from relay_core.net.hybrid.connector import connect
from relay_core.net.hybrid.listener import HybridConnectionListener
from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.azure.entra import RELAY, SECRETS_USER, SENDER, VAULT
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import HC, NAMESPACE, VAULT_HOST, Azure
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE

SECRET = "relay-myhc-agent"
FROM_VAULT = AccessSettings(hc=HC, connection_string_secret=SECRET, key_vault="contoso-kv")
FROM_ENTRA = AccessSettings(hc=HC, namespace="contoso")


def use(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def _only_our_deadline_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK wait for an hour, so that a deadline which does not hold is noticed."""
    monkeypatch.setattr(azure_sdk, "CONNECT_TIMEOUT", 3600.0)
    monkeypatch.setattr(azure_sdk, "READ_TIMEOUT", 3600.0)


async def listens(cloud: Azure, settings: AccessSettings, side: str = "agent", *, deadline: float = DEADLINE) -> None:
    """Assert that the relay accepts what `settings` lead to, for a listener."""
    access = await find_access(settings, side=side, tls=cloud.tls, deadline=deadline)
    assert cloud.endpoint == access.endpoint
    up = asyncio.Event()
    listener = HybridConnectionListener(
        access.endpoint, access.credential, tls=cloud.tls, on_state=lambda _state, error: error or up.set()
    )
    async with listener:
        await asyncio.wait_for(up.wait(), DEADLINE)
        assert 1 == cloud.relay.metrics().active_listeners


async def fails(settings: AccessSettings, cloud: Azure, kind: type[RelayDebugError], *parts: str, **options) -> None:
    """Assert that `settings` end in an error of this kind, with these parts, within the deadline."""
    deadline = options.pop("deadline", DEADLINE)
    with pytest.raises(kind) as caught:
        async with timeout(2 * DEADLINE):  # a service that hangs never answers
            access = await find_access(settings, side="agent", tls=cloud.tls, deadline=deadline, **options)
            await access.credential.token(access.endpoint)
    assert kind is type(caught.value)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


# Key Vault:


async def test_a_secret_becomes_a_listener(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """An agent reads its connection string with the job's identity, after the vault's challenge, and listens."""
    cloud.vault.secrets[SECRET] = cloud.connection_string("listen")
    await listens(cloud, FROM_VAULT)
    path = f"/secrets/{SECRET}"
    assert [(f"{path}/", False), (f"{path}/", True)] == cloud.vault.requests
    assert [VAULT] == [request["resource"] for request in identity.requests]


async def test_the_vault_and_the_secret_of_the_environment(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KEY_VAULT_URL and RELAY_CONNECTION_STRING_SECRET do without options, and with a tunnel key in the string."""
    key = secrets.new_key()
    cloud.vault.secrets[SECRET] = f"{cloud.connection_string('listen')};TunnelKey={key}\n"
    use(monkeypatch, {"KEY_VAULT_URL": f"https://{VAULT_HOST}/", "RELAY_CONNECTION_STRING_SECRET": SECRET})
    access = await find_access(AccessSettings(), side="agent", tls=cloud.tls)
    assert access.tunnel_key is not None
    assert f"Key Vault secret '{SECRET}'" == access.source
    assert (access.endpoint, str(access.credential)) == (cloud.endpoint, "key of rule 'listen'")
    assert repr(access.tunnel_key) not in repr(access)


async def test_a_missing_role(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """If the identity lacks its role, the error names the role, and how long a new one takes to take effect."""
    cloud.vault.secrets[SECRET] = cloud.connection_string("listen")
    cloud.issuer.roles[VAULT] = []
    role = f"the role {SECRETS_USER} is missing or has not taken effect yet"
    await fails(
        FROM_VAULT,
        cloud,
        Unauthorized,
        f"managed identity is not permitted to read secret '{SECRET}'",
        role,
        "5 minutes",
    )


@pytest.mark.parametrize("code", ["ForbiddenByPolicy", "AccessDenied"])
async def test_a_missing_access_policy(cloud: Azure, identity: FakeManagedIdentity, code: str) -> None:
    """Where the vault uses access policies, the hint is the command that sets one, not a role that changes nothing."""
    cloud.vault.secrets[SECRET] = cloud.connection_string("listen")
    cloud.vault.forbidden = code
    command = "az keyvault set-policy -n contoso-kv --object-id <identity> --secret-permissions get"
    await fails(
        FROM_VAULT, cloud, Unauthorized, "none of the vault's access policies allows this", command, "ignores roles"
    )


async def test_other_refusals_of_the_vault(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """Firewall, disabled secret and refused token have different errors."""
    cloud.vault.forbidden = "ForbiddenByFirewall"
    await fails(FROM_VAULT, cloud, Unauthorized, f"the firewall of Key Vault {VAULT_HOST} blocks this machine")
    cloud.vault.forbidden = "SecretDisabled"
    await fails(FROM_VAULT, cloud, ConfigurationError, f"secret '{SECRET}' in {VAULT_HOST} is disabled")
    cloud.vault.refuse_tokens = True
    await fails(FROM_VAULT, cloud, Unauthorized, f"{VAULT_HOST} refused the token of managed identity (401)")


async def test_secrets_that_are_not_there(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """A secret that never existed and one that can be recovered have different errors, with the command that helps."""
    await fails(FROM_VAULT, cloud, ConfigurationError, f"has no secret '{SECRET}'", "az keyvault secret list")
    cloud.vault.deleted.add(SECRET)
    await fails(FROM_VAULT, cloud, ConfigurationError, "was deleted and can be recovered", "az keyvault secret recover")


async def test_secrets_that_are_useless(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """A secret that is empty, or no connection string, is named and not repeated."""
    cloud.vault.secrets[SECRET] = " "
    await fails(FROM_VAULT, cloud, ConfigurationError, f"secret '{SECRET}' in {VAULT_HOST} is empty")
    cloud.vault.secrets[SECRET] = secrets.new_key()
    await fails(
        FROM_VAULT,
        cloud,
        ConfigurationError,
        f"Key Vault secret '{SECRET}': the connection string has an unknown",
    )
    name = "relay_myhc"
    settings = AccessSettings(hc=HC, connection_string_secret=name, key_vault="contoso-kv")
    await fails(settings, cloud, ConfigurationError, f"'{name}' is not a valid Key Vault secret name")


async def test_a_vault_that_cannot_be_reached(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """A vault that does not exist, does not answer or is busy ends within the deadline with its name."""
    await fails(
        AccessSettings(hc=HC, connection_string_secret=SECRET, key_vault="no-such-kv"),
        cloud,
        RelayUnreachable,
        "the Key Vault no-such-kv.vault.azure.net cannot be reached",
    )
    cloud.vault.broken = 503
    await fails(FROM_VAULT, cloud, RelayUnreachable, f"the Key Vault {VAULT_HOST} is temporarily unavailable (503)")
    cloud.vault.silent = True
    await fails(FROM_VAULT, cloud, RelayUnreachable, f"{VAULT_HOST} cannot be reached: no answer", deadline=1.0)
    cloud.proxy.swallowed.add(VAULT_HOST)
    await fails(FROM_VAULT, cloud, RelayUnreachable, f"{VAULT_HOST} cannot be reached: no answer", deadline=1.0)


async def test_somebody_in_the_vaults_name(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """A certificate that is not trusted, and a challenge for a foreign resource, get no token."""
    with pytest.raises(UntrustedCertificate, match=f"the certificate of {VAULT_HOST} is not trusted"):
        await find_access(FROM_VAULT, side="agent")
    cloud.vault.resource = "https://evil.example"
    await fails(FROM_VAULT, cloud, RelayUnreachable, "is not a Key Vault: ")
    assert [] == identity.requests


async def test_no_identity_for_the_vault(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any identity, the error of the vault's reader names what was tried."""
    use(monkeypatch, {"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9"})
    await fails(FROM_VAULT, cloud, ConfigurationError, f"no Entra ID token for {VAULT}", "AZURE_FEDERATED_TOKEN_FILE")


# Entra ID:


async def test_the_identity_of_an_azure_ml_job(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent listens with its managed identity; DEFAULT_IDENTITY_CLIENT_ID picks the one to ask for."""
    identity.known_client = "33333333-3333-3333-3333-333333333333"
    use(monkeypatch, identity.azure_ml())
    await listens(cloud, FROM_ENTRA)
    assert [identity.known_client] == [request["clientid"] for request in identity.requests]
    assert [RELAY] == [request["resource"] for request in identity.requests]


@pytest.mark.parametrize("variable", ["DEFAULT_IDENTITY_CLIENT_ID", "AZURE_CLIENT_ID", ""])
async def test_an_identity_that_this_compute_does_not_have(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """If an identity endpoint returns no token, the hint names the missing identity instead of a sign-in."""
    identity.known_client = "33333333-3333-3333-3333-333333333333"
    monkeypatch.delenv("DEFAULT_IDENTITY_CLIENT_ID", raising=False)
    if variable:
        use(monkeypatch, {variable: "4444"})
        hint = f"assign the identity with the client id 4444 to this compute, or correct {variable}"
    else:
        hint = "assign a managed identity to this compute; if it has several, select one with AZURE_CLIENT_ID"
    await fails(FROM_ENTRA, cloud, Unauthorized, "managed identity: ", hint)


async def test_other_identities_of_an_agent(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pod's workload identity, the user of an Azure ML job, a VM and a service principal can all listen."""
    ways = {
        "workload": cloud.entra.workload(tmp_path),
        "on-behalf-of": identity.on_behalf_of(),
        "managed": identity.imds(),
        "environment": cloud.entra.principal(),
    }
    for name, variables in ways.items():
        with monkeypatch.context() as patch:
            for variable in ("MSI_ENDPOINT", "MSI_SECRET"):
                patch.delenv(variable)
            use(patch, variables)
            source = TokenSource(choose_identities("agent", requested=None, environ={}), tls=cloud.tls)
            await source.token("https://relay.azure.net/.default")
            assert IDENTITIES[name] is source.used
            await listens(cloud, FROM_ENTRA)


@pytest.fixture
def az(cloud: Azure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeAzure]:
    """An `az` that is the only program on the PATH."""
    with FakeAzure(tmp_path) as azure:
        use(monkeypatch, azure.path)
        yield azure


async def test_the_azure_cli_of_a_developer(cloud: Azure, az: FakeAzure, identity: FakeManagedIdentity) -> None:
    """A client uses `az`, asks it once for several connections, and ignores the machine's managed identity."""
    cloud.issuer.roles[RELAY] = [SENDER]
    az.log_in(cloud.issuer)
    access = await find_access(FROM_ENTRA, side="client", tls=cloud.tls)
    for _ in range(3):
        with pytest.raises(RelayDebugError, match="no agent is listening"):
            await connect(access.endpoint, access.credential, tls=cloud.tls)
    asked = ["account", "get-access-token", "--output", "json", "--resource", RELAY]
    assert [asked] == [call["argv"] for call in az.calls()]
    assert [] == identity.requests


async def test_an_az_that_is_of_no_help(az: FakeAzure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Signed out, refused, hanging or absent: one sentence names `az`, and the hint what to type."""
    source = TokenSource(choose_identities("client", requested=None, environ={}), deadline=DEADLINE)
    az.change(signed_in=False)
    with pytest.raises(ConfigurationError, match=r"Azure CLI: .*hint: run: az login"):
        await source.token("https://relay.azure.net/.default")
    az.change(signed_in=True)
    az.inject("account get-access-token", "AADSTS70043: The refresh token has expired. Trace ID: 1")
    with pytest.raises(Unauthorized, match=r"Azure CLI: .*AADSTS70043: The refresh token has expired;"):
        await source.token("https://relay.azure.net/.default")
    az.hang("account get-access-token")
    with pytest.raises(RelayUnreachable, match="Azure CLI: no answer within [01] s"):
        async with timeout(DEADLINE):
            await source.token("https://relay.azure.net/.default", within=1.5)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="Azure CLI: 'az' is not on the PATH"):
        await source.token("https://relay.azure.net/.default")


async def test_a_connection_string_that_asks_for_an_identity(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Authentication=Managed Identity` in a connection string uses Entra ID."""
    text = f"Endpoint=sb://{NAMESPACE}/;EntityPath={HC};Authentication=Managed Identity"
    monkeypatch.setenv("RELAY_CONNECTION_STRING", text)
    await listens(cloud, AccessSettings())


async def test_tokens_are_renewed_from_their_real_expiry(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """With tokens of three seconds the control channel outlives several, without a new connection."""
    cloud.issuer.lifetime = 3.0
    access = await find_access(FROM_ENTRA, side="agent", tls=cloud.tls)
    async with HybridConnectionListener(access.endpoint, access.credential, tls=cloud.tls):
        async with timeout(DEADLINE):
            while len(identity.requests) < 4:
                await asyncio.sleep(0.05)
        assert (1, 1) == (
            cloud.relay.metrics().active_listeners,
            cloud.relay.metrics().listener_connections,
        )


# Deadlines and messages:


async def test_a_metadata_service_that_never_answers(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deadline covers everything that is tried, and the sentence lists it."""
    identity.silent = True
    await fails(
        FROM_ENTRA, cloud, RelayUnreachable, "workload identity: ", "managed identity: no answer within", deadline=1.0
    )
    use(monkeypatch, cloud.entra.principal())
    cloud.proxy.swallowed.add("login.microsoftonline.com")
    await fails(
        FROM_ENTRA,
        cloud,
        RelayUnreachable,
        "service principal: no answer within ",
        "managed identity: not tried, because no time was left",
        deadline=1.0,
    )


async def test_a_metadata_address_that_leads_nowhere(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that takes no connection costs a second or two, not the thirteen of the SDK's defaults."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), contextlib.ExitStack() as waiting:
            for _ in range(2):
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(address)
            use(monkeypatch, {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://127.0.0.1:{address[1]}"})
            started = time.monotonic()
            await fails(FROM_ENTRA, cloud, ConfigurationError, "managed identity: ", "this compute, or use")
            assert time.monotonic() - started < DEADLINE / 10


async def test_a_refused_service_principal(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entra ID's own words reach the user without the secret, the links and the trace id."""
    use(monkeypatch, cloud.entra.principal() | {"AZURE_CLIENT_SECRET": secrets.new_key()})
    use(monkeypatch, {"RELAY_IDENTITY": "environment"})
    await fails(FROM_ENTRA, cloud, Unauthorized, "service principal: ", "AADSTS7000215: Invalid client secret")


async def test_an_unknown_identity(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in AZURE_TOKEN_CREDENTIALS is reported with the known values."""
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentity")
    await fails(FROM_ENTRA, cloud, ConfigurationError, "AZURE_TOKEN_CREDENTIALS", "'ManagedIdentity'", "azure-cli")


async def test_the_explanation(cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source has its line, the one that counts shows its result, and no line contains a secret."""
    monkeypatch.setenv("RELAY_CONNECTION_STRING", cloud.connection_string("listen"))
    cloud.vault.secrets["the-key"] = secrets.new_key()
    settings = AccessSettings(hc=HC, namespace="contoso", key_vault="contoso-kv", tunnel_key_secret="the-key")
    lines, error = await explain_access(Search(settings, side="agent", tls=cloud.tls))
    assert error is None
    text = "\n".join(lines)
    secrets.check(text)
    entra = next(line for line in lines if line.startswith("  Entra ID  "))
    assert f"namespace contoso -> used: {cloud.endpoint}, service principal: AZURE_TENANT_ID" in entra
    assert entra.endswith("managed identity: token, valid for 60 min")
    assert "RELAY_CONNECTION_STRING       set (not used: Entra ID takes precedence)" in text
    assert "--tunnel-key-secret      secret 'the-key' in contoso-kv -> used" in text


async def test_an_implausible_validity(
    cloud: Azure, identity: FakeManagedIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a token that an endpoint declares valid for 70 years, the explanation does not state the validity."""
    monkeypatch.setattr(identity.issuer, "lifetime", 36_737_374 * 60)
    lines, error = await explain_access(Search(FROM_ENTRA, side="agent", tls=cloud.tls))
    assert error is None
    assert next(line for line in lines if line.startswith("  Entra ID  ")).endswith("managed identity: token")


async def test_sdk_logs_hold_no_secret(
    cloud: Azure, identity: FakeManagedIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    """With every logger at DEBUG the SDK writes a lot, and neither a token nor the secret's value is in it."""
    cloud.vault.secrets[SECRET] = cloud.connection_string("listen")
    logging.getLogger("azure").setLevel(logging.DEBUG)
    try:
        await listens(cloud, FROM_VAULT)
    finally:
        logging.getLogger("azure").setLevel(logging.NOTSET)
    azure_records = [record for record in caplog.records if record.name.startswith("azure")]
    assert len(azure_records) > 5
    assert os.environ["MSI_SECRET"] not in caplog.text
