"""Facts about the guide from nothing to a breakpoint on Azure: every command of its walk runs here, as it stands there.

Each block of the page goes to a shell that has what the page may use and no other program, so an unknown command fails,
and so does an unknown option. What cannot be had here is played, by what refuses what the real thing refuses:

    az                once the quick stand-in, which knows the options of the real one, and once the real one, over
                      services that have Azure's own names; both start with an empty subscription
    Azure Relay, Key Vault, identities
                      relay-server, a vault and token endpoints under Azure's own names; they know the keys, secrets and
                      roles that the page's commands have made, and no others
    Azure ML          `submit.py` gets --dry-run, because nothing can be submitted; then the steps of the very body that
                      it would have sent are run, with the identity of the cluster
    VS Code           a debugger that attaches as launch.json specifies
    pip               what it is asked for is compared with pyproject.toml; nothing is installed

The ports become free ones, because other tests run at the same time. There are no other substitutions: the real `az`
finds its services through HTTPS_PROXY and a CA file, as relay-client and the steps find theirs.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from relay_server.config.model import HybridConnection, Right, Rule
from tests.samples.kit import (
    ROOT,
    SAMPLES,
    Running,
    breakpoint_hit,
    environment,
    free_ports,
    needs_sdk,
    running,
)
from tests.support import secrets
from tests.support.az_shim.kit import USER, FakeAzure
from tests.support.azure.cli import RealAz, needs_az
from tests.support.azure.kit import AzureOverHttp
from tests.support.azure.state import ROLE_NAMES
from tests.support.entra import LISTENER, RELAY, SECRETS_USER, SENDER, VAULT
from tests.support.entra_network import Azure, azure, clean_environment, web_server
from tests.support.managed_identity import FakeManagedIdentity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GUIDE = ROOT / "docs" / "guides" / "azure.md"
TITLE = "## Step by step\n"
PAGE = GUIDE.read_text().partition(TITLE)[2].partition("\n## ")[0]
FENCES = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
SIGN_IN, CREATE, WITH_KEY_VAULT, WITH_ENTRA_ID, SUBMIT, LOCAL = [text for language, text in FENCES if language == "sh"]
ON_AZURE = SIGN_IN + CREATE
PORTS = "5678-5680"

SAMPLE = SAMPLES / "azureml_pipeline"
STEPS = SAMPLE / "steps"
CLUSTER = "11111111-2222-3333-4444-555555555555"
"""Object id of the cluster's identity."""
TOOLS = (
    *("base64", "bash", "cat", "cksum", "cmp", "cp", "dirname", "grep", "head"),
    *("mkdir", "mktemp", "paste", "rm", "sed", "sleep", "tr"),
)
"""What a shell always has; infra/*.sh use them."""
ROLES = {
    "26e0b698-aa6d-4085-9386-aadae190014d": LISTENER,
    "26baccc8-eea7-41f1-98f4-1762cc7f685d": SENDER,
    "4633458b-17de-408a-b874-0445c86b69e6": SECRETS_USER,
}
AZURE_ML = """
import json, os, signal, sys
from pathlib import Path
from local_run import run_step
from relay_agent.azureml import read_steps

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the step is ended
body, folder, name = sys.argv[1:]
steps = {step.name: step for step in read_steps(json.loads(Path(body).read_text()))}
sys.exit(run_step(steps[name], Path(folder), os.environ))
"""


def cluster(principal: str) -> dict[str, Any]:
    """The parts of a compute cluster that the page asks for."""
    identity = {"type": "SystemAssigned", "principalId": principal}
    return {"identity": identity, "properties": {"properties": {"scaleSettings": {"maxNodeCount": 4}}}}


class Shell:
    """A terminal of the reader, in a checkout of this repository, with an empty subscription."""

    def __init__(self, azure: FakeAzure, folder: Path) -> None:
        self.azure = azure
        self.azure.change(signed_in=False, provider_registered=False, groups={}, vaults={})
        clusters = {"Microsoft.MachineLearningServices/workspaces/contoso-ml/computes/cpu-cluster": CLUSTER}
        known = {name: cluster(principal) for name, principal in clusters.items()}
        self.azure.change(known_resources=known)
        self.variables: dict[str, str] = {}
        """What stands in for the way to Azure."""
        self.requirements = folder / "pip.txt"
        for tool in TOOLS:
            (self.azure.bin / tool).symlink_to(shutil.which(tool) or tool)
        self._add("python", f'exec "{sys.executable}" "$@"')
        self._add("relay-client", f'exec "{sys.executable}" -m relay_client "$@"')
        self._add("pip", f'printf "%s\\n" "$*" >>"{self.requirements}"')

    def _add(self, name: str, script: str) -> None:
        path = self.azure.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def running(self, block: str) -> AbstractAsyncContextManager[Running]:
        """Run a block of the page; it is ended with all that it has started at the end of the block."""
        variables = {"PATH": str(self.azure.bin), "HOME": str(self.azure.home), **self.variables}
        # fmt: off
        return running(
            *("bash", "-euo", "pipefail", "-c", block),
            cwd=ROOT, env=environment(**variables, PYTHONPATH=str(ROOT)),
        )
        # fmt: on

    async def run(self, block: str) -> str:
        """Run a block to its end, which must be good, and return what it printed."""
        async with self.running(block) as shell:
            assert 0 == await shell.finish(), shell.output
        secrets._keys.update(self.azure.key_material())
        secrets.check(shell.output)
        return shell.output


@pytest.fixture(params=["stand-in", pytest.param("real-az", marks=needs_az)])
def shell(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    az: RealAz | None,
    tls_directory: Path,
) -> Iterator[Shell]:
    """A shell whose `az` is the stand-in, or the real one over the same small Azure."""
    clean_environment(monkeypatch)
    if az is None or request.param == "stand-in":
        with FakeAzure(tmp_path) as azure:
            yield Shell(azure, tmp_path)
        return
    with AzureOverHttp(tmp_path, tls_directory, az) as real:
        real.sign_out()
        real.roles_of_user = lambda resource: roles(real, USER).get(resource, [])
        yield Shell(real, tmp_path)
    assert [] == real.unknown


class StoredSecrets(dict[str, str]):
    """What is in the vault of the stand-in for az, at any time."""

    def __init__(self, stand_in: FakeAzure) -> None:
        self._stand_in = stand_in

    def __contains__(self, name: object) -> bool:
        return name in self._stand_in.vault["secrets"]

    def __getitem__(self, name: str) -> str:
        return self._stand_in.secret(name)


def roles(stand_in: FakeAzure, principal: str) -> dict[str, list[str]]:
    """The roles that the tokens of somebody carry, by the resource that they are for."""
    given = [(ROLES.get(role), scope) for who, role, scope, _ in stand_in.load()["roles"] if who == principal]
    return {
        RELAY: [str(role) for role, scope in given if scope.endswith("/contoso-debug/hybridConnections/alice")],
        VAULT: [str(role) for role, scope in given if "/vaults/contoso-kv/secrets/relay-alice-" in scope],
    }


@contextlib.asynccontextmanager
async def made_by(shell: Shell, directory: Path) -> AsyncIterator[tuple[Azure, FakeManagedIdentity]]:
    """Azure as the commands have made it, for the shell's programs, and the identity of the cluster in it."""
    rules = tuple(
        Rule(name, frozenset(map(Right, rule["rights"])), rule["PrimaryKey"], rule["SecondaryKey"])
        for name, rule in shell.azure.hc()["rules"].items()
    )
    connections = (HybridConnection("alice", rules=rules),)
    async with azure(
        directory, namespace="contoso-debug.servicebus.windows.net", hybrid_connections=connections
    ) as cloud:
        cloud.vault.secrets = StoredSecrets(shell.azure)
        cloud.issuer.roles = roles(shell.azure, CLUSTER)
        if isinstance(shell.azure, AzureOverHttp):
            trust_tokens_of(shell.azure, cloud)
        else:
            tokens = {resource: token_of_laptop(cloud, shell, resource) for resource in (RELAY, VAULT)}
            shell.azure.change(tokens=tokens)
        shell.variables = cloud.environment
        identity = FakeManagedIdentity(cloud.issuer)
        async with web_server(identity.app()) as identity.port:
            yield cloud, identity


def trust_tokens_of(real: AzureOverHttp, cloud: Azure) -> None:
    """Let the vault know the tokens that the real `az` has, with the roles that their owner has by now.

    A Key Vault looks roles up when it is asked. The one here reads them in the token, which `az` keeps for an hour.
    """
    cloud.issuer.issued = real.issuer.issued
    for claims in real.issuer.issued.values():
        if claims["aud"] == VAULT:
            claims["roles"] = roles(real, USER)[VAULT]


def token_of_laptop(cloud: Azure, shell: Shell, resource: str) -> dict[str, Any]:
    """What `az account get-access-token` prints for whoever is signed in."""
    expires_on = int(time.time() + cloud.issuer.lifetime)
    return {
        "accessToken": cloud.issuer.token(resource, oid=USER, roles=roles(shell.azure, USER)[resource]),
        "expiresOn": time.strftime("%Y-%m-%d %H:%M:%S.000000", time.localtime(expires_on)),
        "expires_on": expires_on,
        "tokenType": "Bearer",
    }


def test_the_page_has_nothing_else_to_type() -> None:
    """Whatever stands in a block of its own in the walk is one of the six that run here."""
    assert ["sh"] * 6 == [language for language, _ in FENCES]


def test_names_of_the_debugger() -> None:
    """The configurations that the page names are in launch.json, and relay-client opens the ports of all of them."""
    (link,) = re.findall(r"\[launch\.json\]\((.*?)\)", PAGE)
    written = json.loads((GUIDE.parent / link).read_text())
    known = {one["name"]: one["connect"]["port"] for one in written["configurations"]}
    assert known == {name: int(port) for name, port in re.findall(r"`(\w+ \((\d+)\))`", PAGE)}
    first, last = PORTS.split("-")
    assert list(range(int(first), int(last) + 1)) == sorted(known.values())
    assert "`all steps`" in PAGE
    assert ["all steps"] == [one["name"] for one in written["compounds"]]
    mapping = {"localRoot": "${workspaceFolder}/steps", "remoteRoot": "."}  # of the folder to open in VS Code
    assert [[mapping]] * 3 == [one["pathMappings"] for one in written["configurations"]]
    assert f"Open `{SAMPLE.relative_to(ROOT)}` in VS Code" in PAGE


def test_the_other_links() -> None:
    """The page refers to files that are there."""
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (GUIDE.parent / link).is_file(), link


async def test_the_azure_side(shell: Shell) -> None:
    """The first two blocks make vault, namespace, hybrid connection and two secrets in an empty subscription.

    The cluster may listen and read its secret, the developer may send and read hers, and nobody may more. The command
    that may be refused once may be typed again, and then changes nothing.
    """
    out = await shell.run(ON_AZURE)
    assert "'alice' is ready." in out
    assert {"agent-listen", "client-send"} == shell.azure.hc()["rules"].keys()
    assert {"relay-alice-agent", "relay-alice-client"} == shell.azure.vault["secrets"].keys()
    given = [(who, ROLE_NAMES[role], scope.split("/")[-1]) for who, role, scope, _ in shell.azure.load()["roles"]]
    assert [
        (USER, "Key Vault Secrets Officer", "contoso-kv"),
        (CLUSTER, LISTENER, "alice"),
        (CLUSTER, SECRETS_USER, "relay-alice-agent"),
        (USER, SENDER, "alice"),
        (USER, SECRETS_USER, "relay-alice-client"),
    ] == given
    before = shell.azure.resources()
    only_last = re.sub(r"^az (group|keyvault) create .*\n", "", ON_AZURE, flags=re.MULTILINE)
    assert "nothing to change" in await shell.run(only_last)
    assert before == shell.azure.resources()


@pytest.mark.parametrize("word", ["azz login", "az login --please", "relay-client --please", "pipx install x"])
async def test_a_mistake_on_the_page_is_found(shell: Shell, word: str) -> None:
    """A command or an option that nobody knows ends a block with an error."""
    async with shell.running(f"{word}\ntrue") as typed:
        assert await typed.finish() in {2, 127}


@pytest.mark.e2e
@needs_sdk
async def test_from_nothing_to_a_breakpoint(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """The page leads to a breakpoint in a step, with a connection string from Key Vault and with Entra ID alike.

    Agent and clients have nothing but what the page's commands have stored, and the roles that they have given.
    """
    await shell.run(ON_AZURE)
    first = free_ports(6)
    ports = f"{first}-{first + 2}"
    body = tmp_path / "body.json"
    body.write_text(await shell.run(f"{SUBMIT.rstrip()} --dry-run --debug-port {first}"))
    async with made_by(shell, tmp_path_factory.mktemp("azure")) as (cloud, identity):
        on_cluster = environment(**cloud.environment, **identity.azure_ml())

        def azure_ml(step: str) -> AbstractAsyncContextManager[Running]:
            return running(sys.executable, "-c", AZURE_ML, str(body), str(tmp_path), step, cwd=SAMPLE, env=on_cluster)

        async with shell.running(WITH_KEY_VAULT.replace(PORTS, ports)) as client:
            await client.line("relay-client: ready")
            async with azure_ml("prepare") as step:
                async with breakpoint_hit(first, STEPS / "prepare.py", "points = draw(100, rng)") as stop:
                    assert ("main", "True") == (stop.function, await stop.evaluate("options.is_debug"))
                assert 0 == await step.finish()
            assert "TunnelKey" not in client.output + step.output  # nobody warns that there is none
        assert ["/secrets/relay-alice-client", "/secrets/relay-alice-agent"] == asked_for(cloud)

        async with shell.running(WITH_ENTRA_ID.replace(PORTS, ports)) as client:
            await client.line("relay-client: ready")
            async with azure_ml("featurize") as step:
                async with breakpoint_hit(first + 1, STEPS / "featurize.py", "return f") as stop:
                    assert ("featurize", "'part-00.csv'") == (stop.function, await stop.evaluate("path.name"))
                assert 0 == await step.finish()
        assert "/secrets/relay-alice-tunnel-key" in asked_for(cloud)
    asked = [call["argv"] for call in shell.azure.calls() if "get-access-token" in call["argv"]]
    assert {RELAY, VAULT} == {argv[argv.index("--resource") + 1] for argv in asked}
    assert {VAULT} == {request["resource"] for request in identity.requests}


def asked_for(cloud: Azure) -> list[str]:
    """The secrets that were asked for with a token, each once, in order."""
    return list(dict.fromkeys(path.rstrip("/") for path, with_token in cloud.vault.requests if with_token))


@pytest.mark.e2e
@needs_sdk
@pytest.mark.parametrize("shell", ["stand-in"], indirect=True)  # no `az` is called at all
async def test_without_a_subscription(shell: Shell) -> None:
    """The last block stops at a breakpoint in the first step with nothing of Azure; the others are tested elsewhere."""
    first = free_ports(6)
    async with shell.running(f"{LOCAL.rstrip()} --debug-port {first}") as local:
        await local.line(f"--- prepare, debugger port {first}")
        async with breakpoint_hit(first, STEPS / "prepare.py", "points = draw(100, rng)") as stop:
            assert "main" == stop.function
    assert [] == shell.azure.calls()


def test_what_is_installed() -> None:
    """What pip is asked to install is this checkout, with extras that it has, and they hold what the page runs."""
    commands = [shlex.split(line) for line in "".join(text for _, text in FENCES).splitlines() if "pip " in line]
    assert [["pip", "install"]] == [command[:2] for command in commands]
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (text,) = commands[0][2:]
    assert text.startswith(".[")
    requirement = Requirement(f"{project['name']}{text.removeprefix('.')}")
    assert requirement.extras <= extras.keys()
    assert "relay-client" in project["scripts"]
    assert {"client", "ml"} == requirement.extras
    installed = {Requirement(each).name for name in requirement.extras for each in extras[name]}
    installed |= {Requirement(each).name for each in project["dependencies"]}
    assert {"azure-ai-ml", "azure-identity", "azure-keyvault-secrets", "websockets"} <= installed
