"""Facts about the commands and the job with every kind of credential, as processes, against Azure on this machine."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.azure.entra import LISTENER, RELAY, SENDER, VAULT
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import HC, VAULT_HOST, Azure, azure, clean_environment, web_server
from tests.support.jobs.processes import job
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, program, run
from tests.support.machine.streams import echo, local_server

pytestmark = pytest.mark.e2e

SECRET = "relay-myhc-agent"


@pytest.fixture(scope="module")
def azure_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where certificates are kept: made once."""
    return tmp_path_factory.mktemp("azure")


@pytest_asyncio.fixture
async def cloud(azure_directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Azure]:
    """Azure on this machine; children find it only if they are given `cloud.environment`."""
    clean_environment(monkeypatch)
    async with azure(azure_directory) as running:
        yield running


@pytest_asyncio.fixture
async def identity(cloud: Azure) -> AsyncIterator[FakeManagedIdentity]:
    """The identity of an Azure ML job."""
    running = FakeManagedIdentity(cloud.issuer)
    async with web_server(running.app()) as running.port:
        yield running


@pytest.fixture
def az(cloud: Azure, tmp_path: Path) -> Iterator[FakeAzure]:
    """A developer's `az`, signed in as somebody who may send and nothing else."""
    with FakeAzure(tmp_path) as azure:
        cloud.issuer.roles[RELAY] = [SENDER]
        azure.log_in(cloud.issuer)
        cloud.issuer.roles[RELAY] = [LISTENER]
        yield azure


def assert_one_line(finished: Finished, status: int, *parts: str) -> None:
    """Assert that a program ended with its error line and nothing else on stderr."""
    assert status == finished.status, finished.stderr
    lines = finished.stderr.splitlines()
    errors = [line for line in lines if ": error: " in line]
    assert len(errors) == 1, finished.stderr
    assert all(part in errors[0] for part in (*parts, "hint: ")), errors[0]
    assert all(re.match(r"(\d{4}-\d\d-\d\d [\d:]{8} )?relay-", line) for line in lines), finished.stderr


@pytest.mark.parametrize("name", [["--debug-relay-connection-name", HC], []])
async def test_the_secret_of_a_step_argument(cloud: Azure, identity: FakeManagedIdentity, name: list[str]) -> None:
    """The agent of a job reads the named secret; the job imports nothing of azure and never sees the secret."""
    cloud.vault.secrets[SECRET] = cloud.connection_string("listen")
    code = """
        import relay_agent, time
        from relay_agent.debuggee import process
        relay_agent.start_remote_debugging_from_args()
        client = process.current().node_client
        while not client.attaching.listening.is_set() and not client.attaching.hopeless.is_set():
            time.sleep(0.02)
        print(client.agent_pid, client.attaching.listening.is_set(), "azure" in sys.modules, flush=True)
        sys.stdin.readline()
    """
    arguments = ["--is-debug", "True", *name, "--debug-port", "5678", "--debug-wait", "0"]
    arguments += ["--debug-relay-connection-string-secret", SECRET]
    variables = {**cloud.environment, **identity.azure_ml(), "KEY_VAULT_URL": f"https://{VAULT_HOST}/"}
    async with job(code, *arguments, **variables) as running:
        pid, listening, azure_imported = (await running.line()).split()
        assert ("True", "False") == (listening, azure_imported)
        agent = psutil.Process(int(pid))
        secrets.check(" ".join(agent.cmdline()))
        assert cloud.keys["listen"] not in " ".join(agent.environ().values())
        assert 1 == cloud.relay.metrics().active_listeners
        status, _, err = await running.finish()
    assert status == 0
    secrets.check(err)
    assert f"relay-agent: credentials: Key Vault secret '{SECRET}'" in err


async def test_a_job_whose_secret_cannot_be_read(cloud: Azure, identity: FakeManagedIdentity) -> None:
    """The job logs the reason and continues."""
    cloud.issuer.roles[VAULT] = []
    code = "import relay_agent; print(relay_agent.start_remote_debugging_from_args())"
    arguments = ["--is-debug=1", f"--debug-relay-connection-name={HC}"]
    arguments += [f"--debug-relay-connection-string-secret={SECRET}"]
    variables = {**cloud.environment, **identity.azure_ml(), "KEY_VAULT_URL": f"https://{VAULT_HOST}/"}
    async with job(code, *arguments, **variables) as running:
        status, out, err = await running.finish()
    assert (0, ["False"]) == (status, out)
    assert "continuing without a debugger: managed identity is not permitted to read secret" in err
    assert "the role Key Vault Secrets User is missing or has not taken effect yet" in err


async def test_no_key_anywhere(cloud: Azure, identity: FakeManagedIdentity, az: FakeAzure) -> None:
    """Agent with a managed identity, client with `az`, tunnel key from Key Vault and variable: bytes go through."""
    key, port = secrets.new_key(), free_port()
    cloud.vault.secrets["tunnel-key"] = key
    agent_environment = {**cloud.environment, **identity.azure_ml()}
    client_environment = {**cloud.environment, **az.path, "RELAY_NAMESPACE": "contoso", "RELAY_TUNNEL_KEY": key}
    async with local_server(echo) as (target, _):
        served = ["--hc", HC, "--namespace", "contoso", "--port", f"{port}:{target}"]
        served += ["--key-vault", "contoso-kv", "--tunnel-key-secret", "tunnel-key"]
        async with program("relay_agent", "serve", *served, env=agent_environment) as agent:
            await agent.line("listening on 'myhc'")
            async with program("relay_client", "--hc", HC, "--ports", str(port), env=client_environment) as client:
                assert "encrypted end to end" in await client.line("relay-client: ready")
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"hello")
                assert b"hello" == await asyncio.wait_for(reader.readexactly(5), DEADLINE)
                writer.close()
    assert ["account", "get-access-token", "--output", "json", "--resource", RELAY] == az.calls()[0]["argv"]


@pytest.mark.parametrize("source", ["file", "secret", "old file", "old variables", "principal"])
async def test_a_client_with_each_source(
    cloud: Azure, az: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Whatever the source, the client gets to the relay and reports that no agent is listening."""
    text, arguments, env = cloud.connection_string("send"), ["--ports", str(free_port())], dict(cloud.environment)
    monkeypatch.chdir(tmp_path)
    if source == "file":
        (tmp_path / "connection").touch(mode=0o600)
        (tmp_path / "connection").write_text(text)
        arguments += ["--connection-string-file", "connection"]
    elif source == "secret":
        cloud.vault.secrets["relay-myhc-client"] = text
        arguments += ["--connection-string-secret", "relay-myhc-client"]
        env |= {**az.path, "KEY_VAULT_URL": f"https://{VAULT_HOST}/"}
    elif source == "old file":
        (tmp_path / ".azrelay.json").touch(mode=0o600)
        (tmp_path / ".azrelay.json").write_text(json.dumps({"AZRELAY_CONNECTION_STRING": text}))
    elif source == "old variables":
        namespace_string = text.replace(f";EntityPath={HC}", "")
        env |= {"AZRELAY_CONNECTION_STRING": namespace_string, "AZRELAY_CONNECTION_NAME": HC}
    else:
        cloud.issuer.roles[RELAY] = [SENDER]
        arguments += ["--namespace", "contoso", "--hc", HC]
        env |= cloud.entra.principal()
    async with program("relay_client", *arguments, env=env) as client:
        await client.line("no agent is listening on 'myhc'")


async def test_the_wrong_role(cloud: Azure, az: FakeAzure) -> None:
    """A listener's role does not let a client send: exit code 4."""
    az.log_in(cloud.issuer)  # now with the role of a listener
    arguments = ["targets", "--hc", HC, "--namespace", "contoso"]
    finished = await run("relay_client", *arguments, env={**cloud.environment, **az.path})
    assert_one_line(finished, 4, "refused the credentials for 'myhc'", "'Send' claim is required", "up to 5 minutes")


async def test_nobody_to_ask(cloud: Azure, tmp_path: Path) -> None:
    """Without any identity the client ends with exit code 3 and one sentence that lists what was tried."""
    arguments = ["--hc", HC, "--namespace", "contoso", "--ports", str(free_port())]
    finished = await run("relay_client", *arguments, env={**cloud.environment, "PATH": str(tmp_path)})
    assert_one_line(finished, 3, "service principal: AZURE_TENANT_ID", "'az' is not on the PATH", "az login")


async def test_services_that_do_not_answer(cloud: Azure, az: FakeAzure, identity: FakeManagedIdentity) -> None:
    """A vault and an `az` that hang for an hour end both programs with exit code 6 after their limit of ten seconds."""
    cloud.vault.silent = True
    az.hang("account get-access-token")
    agent, client = await asyncio.gather(
        run(
            *("relay_agent", "serve", "--port", "5678", "--key-vault", "contoso-kv"),
            *("--connection-string-secret", SECRET),
            env={**cloud.environment, **identity.azure_ml()},
        ),
        run(
            *("relay_client", "--hc", HC, "--namespace", "contoso", "--ports", str(free_port())),
            env={**cloud.environment, **az.path},
        ),
    )
    assert_one_line(agent, 6, f"the Key Vault {VAULT_HOST} cannot be reached: no answer within 10 s")
    assert_one_line(client, 6, "Azure CLI: no answer within ")


async def test_the_explanation(cloud: Azure, az: FakeAzure, identity: FakeManagedIdentity) -> None:
    """--explain-auth asks the source that counts, prints a line for each, and ends with 0 or 3."""
    cloud.vault.secrets[SECRET] = f"{cloud.connection_string('listen')};TunnelKey={secrets.new_key()}"
    env = {**cloud.environment, **identity.azure_ml(), "KEY_VAULT_URL": f"https://{VAULT_HOST}/"}
    env["RELAY_CONNECTION_STRING_SECRET"] = SECRET
    good = await run("relay_agent", "serve", "--explain-auth", env=env)
    assert good.status == 0
    assert f"secret '{SECRET}' in https://{VAULT_HOST}/ -> used: sb://contoso" in good.stdout
    assert "in the connection string -> used" in good.stdout
    env = {**cloud.environment, **az.path, "RELAY_NAMESPACE": "contoso"}
    good = await run("relay_client", "--hc", HC, "--explain-auth", env=env)
    assert (0, "") == (good.status, good.stderr)
    assert "Azure CLI: token, valid for 60 min" in good.stdout
    az.change(signed_in=False)
    bad = await run("relay_client", "--hc", HC, "--explain-auth", env=env)
    assert_one_line(bad, 3, "Azure CLI: ", "az login")
    assert "-> unusable: no Entra ID token" in bad.stdout
