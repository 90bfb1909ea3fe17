"""The commands of docs/guides/azure.md, a shell that runs them, and the Azure that they make on this machine.

Each block of the page goes to a shell that has what the page may use and no other program, so an unknown command fails,
and so does an unknown option. What cannot be had here is played, by what refuses what the real thing refuses:

    az                a stand-in that knows the options of the real one; the tests also use the real one, over services
                      that have Azure's own names; both start with an empty subscription
    Azure Relay, Key Vault, identities
                      relay-server, a vault and token endpoints under Azure's own names; they know the keys, secrets and
                      roles that the page's commands have made, and no others
    Azure ML          `submit.py` gets --dry-run, because nothing can be submitted; then the steps of the very body that
                      it would have sent are run, with the identity of the cluster
    VS Code           a debugger that attaches as launch.json specifies
    pip               what it is asked for is noted; nothing is installed

The ports become free ones. There are no other substitutions: `az` finds its services through HTTPS_PROXY and a CA file,
as relay-client and the steps find theirs.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import AsyncIterator, ItemsView
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from relay_server.config.model import HybridConnection, Right, Rule
from tests.samples.kit import ROOT, SAMPLES, Running, environment, running
from tests.support.azure.az_shim.kit import USER, FakeAzure
from tests.support.azure.cloud.kit import AzureOverHttp
from tests.support.azure.entra import LISTENER, RELAY, SECRETS_USER, SENDER, VAULT
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import Azure, azure, web_server
from tests.support.machine import secrets

GUIDE = ROOT / "docs" / "guides" / "azure.md"


def section(title: str) -> str:
    """The text of a section of the page."""
    return GUIDE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of each block of commands."""
    return re.findall(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)


PAGE = section("Step by step")
FENCES = blocks(PAGE)
SIGN_IN, CREATE, WITH_KEY_VAULT, WITH_ENTRA_ID, SUBMIT, LOCAL = [text for language, text in FENCES if language == "sh"]
((_, CLEAN_UP),) = blocks(section("Clean up"))
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
import local_run
from relay_agent.azureml import read_steps

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the step is ended
body, folder, name = sys.argv[1:]
steps = {step.name: step for step in read_steps(json.loads(Path(body).read_text()))}
if "NO_PLACE" in os.environ:
    local_run.places_of = lambda step: [{}]  # as if Azure ML set no variable with the node
sys.exit(local_run.run_step(steps[name], Path(folder), os.environ))
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
        self._add("relay-agent", f'exec "{sys.executable}" -m relay_agent "$@"')
        self._add("pip", f'printf "%s\\n" "$*" >>"{self.requirements}"')

    def _add(self, name: str, script: str) -> None:
        path = self.azure.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def running(self, block: str, **variables: str) -> AbstractAsyncContextManager[Running]:
        """Run a block of the page; it is ended with all that it has started at the end of the block."""
        variables = {"PATH": str(self.azure.bin), "HOME": str(self.azure.home), **self.variables, **variables}
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


class StoredSecrets(dict[str, str]):
    """What is in the vault of the stand-in for az, at any time."""

    def __init__(self, stand_in: FakeAzure) -> None:
        self._stand_in = stand_in

    def items(self) -> ItemsView[str, str]:
        return {name: versions[-1] for name, versions in self._stand_in.vault["secrets"].items()}.items()


def roles(stand_in: FakeAzure, principal: str) -> dict[str, list[str]]:
    """The roles that the tokens of somebody carry, by the resource that they are for."""
    given = [(ROLES.get(role), scope) for who, role, scope, _ in stand_in.load()["roles"] if who == principal]
    return {
        RELAY: [str(role) for role, scope in given if scope.endswith("/contoso-debug/hybridConnections/alice")],
        VAULT: [str(role) for role, scope in given if "/vaults/contoso-kv/secrets/relay-alice-" in scope],
    }


@contextlib.asynccontextmanager
async def made_by(shell: Shell, directory: Path, **of_relay: Any) -> AsyncIterator[tuple[Azure, FakeManagedIdentity]]:
    """Azure as the commands have made it, for the shell's programs, and the identity of the cluster in it.

    Args:
        shell: Where the commands have run.
        directory: For certificates.
        of_relay: Fields of RelayConfig that differ.
    """
    rules = tuple(
        Rule(name, frozenset(map(Right, rule["rights"])), rule["PrimaryKey"], rule["SecondaryKey"])
        for name, rule in shell.azure.hc()["rules"].items()
    )
    connections = (HybridConnection("alice", rules=rules),)
    async with azure(
        directory, namespace="contoso-debug.servicebus.windows.net", hybrid_connections=connections, **of_relay
    ) as cloud:
        cloud.vault.secrets = StoredSecrets(shell.azure)
        cloud.issuer.roles = roles(shell.azure, CLUSTER)
        if isinstance(shell.azure, AzureOverHttp):
            trust_tokens_of(shell.azure, cloud)
        else:
            given = roles(shell.azure, USER)
            tokens = {name: cloud.issuer.printed(name, oid=USER, roles=given[name]) for name in (RELAY, VAULT)}
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


def asked_for(cloud: Azure) -> list[str]:
    """The secrets that were asked for with a token, each once, in order."""
    return list(dict.fromkeys(path.rstrip("/") for path, with_token in cloud.vault.requests if with_token))
