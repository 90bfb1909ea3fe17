"""The quick stand-in for `az` against the real one, call by call: exit status, stdout, and the first line of stderr.

Each call that the scripts of infra/ and the Azure guide make is made twice, on the same small Azure: by the stand-in,
and by the real program over HTTP. Not compared: a Key Vault's own address for a vault that does not exist, because the
real program would ask the name service of the network.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.azure.az_shim.argtable import COMMANDS
from tests.support.azure.az_shim.fake_az import Answer
from tests.support.azure.az_shim.kit import AGENT, INFRA, PRINCIPAL, USER, FakeAzure
from tests.support.azure.cloud import state as model
from tests.support.azure.cloud import vaults
from tests.support.azure.cloud.cli import RealAz, needs_az
from tests.support.azure.cloud.kit import AzureOverHttp

pytestmark = needs_az

RELAY = "-g debug-rg --namespace-name contoso-debug"
RULE = f"{RELAY} --hybrid-connection-name alice -n agent-listen"
SECRET = f"--vault-name contoso-kv -n {AGENT}"
HC_SCOPE = f"{model.group_id('debug-rg')}/providers/Microsoft.Relay/namespaces/contoso-debug/hybridConnections/alice"
VAULT_SCOPE = f"{model.group_id('vault-rg')}/providers/Microsoft.KeyVault/vaults/contoso-kv"
LISTENER = f"--assignee-object-id {PRINCIPAL} --role {model.LISTENER} --scope {HC_SCOPE}"
CLUSTER = "Microsoft.MachineLearningServices/workspaces/contoso-ml/computes/cpu-cluster"
POLICIES = "\"properties.accessPolicies[].[objectId, join(' ', permissions.secrets || `[]`)]\""
STRINGS = "--query '[primaryConnectionString,secondaryConnectionString]'"
NO_NAMES = "--fill-principal-name false --fill-role-definition-name false"
FACTS = "'[id,resourceGroup,properties.vaultUri,properties.enableRbacAuthorization]'"


def empty(state: model.State) -> None:
    """Leave the resource group and the Key Vault alone."""


def made(state: model.State) -> None:
    """Have what create_relay.sh makes."""
    model.create_namespace(state, "debug-rg", "contoso-debug", "westeurope")
    model.create_hc(state, "debug-rg", "contoso-debug", "alice", authorized=True)
    model.create_rule(state, "debug-rg", "contoso-debug", "alice", "agent-listen", ["Listen"])
    vaults.set_secret(state, "contoso-kv", AGENT, "a string")
    model.assign(state, PRINCIPAL, model.LISTENER, HC_SCOPE, "ServicePrincipal")
    state["known_resources"][CLUSTER] = {"identity": {"principalId": PRINCIPAL}}


def soft_deleted(state: model.State) -> None:
    made(state)
    vaults.delete_secret(state, "contoso-kv", AGENT)


def forbidden(state: model.State) -> None:
    made(state)
    state["vaults"]["contoso-kv"]["forbidden"] = list(vaults.ALL)


def access_policies(state: model.State) -> None:
    made(state)
    state["vaults"]["contoso-kv"].update(rbac=False, policies={PRINCIPAL: ["list"], USER: ["all"]})


def forbidden_by_policy(state: model.State) -> None:
    access_policies(state)
    state["vaults"]["contoso-kv"]["forbidden"] = list(vaults.ALL)


def denied(state: model.State) -> None:
    made(state)
    kinds = ("namespaces", "namespaces/hybridConnections")
    state["denied"] = [f"Microsoft.Relay/{kind}/{verb}" for kind in kinds for verb in ("read", "write", "delete")]
    state["denied"] += [f"Microsoft.Authorization/roleAssignments/{verb}" for verb in ("read", "write")]
    state["denied"] += [f"Microsoft.KeyVault/vaults/{verb}" for verb in ("read", "write")]
    state["denied"] += ["Microsoft.Resources/subscriptions/resourcegroups/write"]


def no_group(state: model.State) -> None:
    state["groups"] = {}


def unregistered(state: model.State) -> None:
    state["provider_registered"] = False


def not_to_be_registered(state: model.State) -> None:
    unregistered(state)
    state["denied"] = ["Microsoft.Relay/register/action"]


def stranger(state: model.State) -> None:
    made(state)
    state["strangers"] = [USER]


def taken(state: model.State) -> None:
    state["taken"] = ["contoso-debug"]


Setup = Callable[[model.State], None]
RELAY_SETUPS = (empty, made, no_group, denied)
SECRET_SETUPS = (empty, made, soft_deleted, forbidden, forbidden_by_policy)
VAULT_SETUPS = (empty, access_policies, denied)
CALLS: list[tuple[str, tuple[Setup, ...]]] = [
    ("login", (empty,)),
    ("account show --query name -o tsv", (empty,)),
    ("account show --query name -o tsv --subscription contoso-dev", (empty,)),
    ("account show --query name -o tsv --only-show-errors --subscription nobody", (empty,)),
    ("account set --subscription contoso-dev", (empty,)),
    ("account set --subscription nobody", (empty,)),
    ("ad signed-in-user show --query id -o tsv", (empty,)),
    ("provider register --namespace Microsoft.Relay --wait", (unregistered, not_to_be_registered)),
    ("group create -n debug-rg -l westeurope", (no_group, empty, denied)),
    ("group exists -n debug-rg -o tsv", (empty, no_group)),
    ("group show -n debug-rg --query location -o tsv", (empty, no_group)),
    (
        (
            "resource show -g ml-rg --namespace Microsoft.MachineLearningServices --parent workspaces/contoso-ml "
            "--resource-type computes -n cpu-cluster --query identity.principalId -o tsv"
        ),
        (empty, made),
    ),
    ("relay namespace show -g debug-rg -n contoso-debug --query '[location,id]' -o tsv", RELAY_SETUPS),
    ("relay namespace exists -n contoso-debug --query nameAvailable -o tsv", (empty, made, taken)),
    (
        "relay namespace create -g debug-rg -n contoso-debug -l westeurope --query id -o tsv --only-show-errors",
        (empty, unregistered, not_to_be_registered, denied),
    ),
    ("relay namespace delete -g debug-rg -n contoso-debug -o none", (empty, made, denied)),
    (f"relay hyco show {RELAY} -n alice --query '[requiresClientAuthorization,listenerCount]' -o tsv", RELAY_SETUPS),
    (f"relay hyco create {RELAY} -n alice --requires-client-authorization true -o none", RELAY_SETUPS),
    (f"relay hyco list {RELAY} --query '[].name' -o tsv", RELAY_SETUPS),
    (f"relay hyco delete {RELAY} -n alice -o none", RELAY_SETUPS),
    (f"relay hyco authorization-rule show {RULE} --query rights -o tsv", RELAY_SETUPS),
    (f"relay hyco authorization-rule create {RULE} --rights Listen -o none", RELAY_SETUPS),
    (
        f"relay hyco authorization-rule keys list {RULE} {STRINGS} -o tsv",
        RELAY_SETUPS,
    ),
    (f"relay hyco authorization-rule keys renew {RULE} --key SecondaryKey -o none", RELAY_SETUPS),
    ("keyvault create -g debug-rg -n new-kv -l westeurope --enable-rbac-authorization true", (empty, no_group)),
    ("keyvault create -g debug-rg -n contoso-kv -l westeurope --enable-rbac-authorization true", (empty,)),
    ("keyvault create -g vault-rg -n contoso-kv -l westeurope --enable-rbac-authorization true", (empty,)),
    (f"keyvault show -n contoso-kv --query {FACTS} -o tsv", VAULT_SETUPS),
    ("keyvault show -n contoso-kv --query properties.enableRbacAuthorization -o tsv", (empty, access_policies)),
    (f"keyvault show -n contoso-kv --query {POLICIES} -o tsv", (empty, access_policies)),
    ("keyvault show -n other-kv --query id -o tsv", (empty,)),
    ("keyvault show -n contoso-kv --query id -o tsv --only-show-errors --subscription nobody", (empty,)),
    (f"keyvault set-policy -n contoso-kv --object-id {PRINCIPAL} --secret-permissions get", VAULT_SETUPS),
    (f"keyvault set-policy -n other-kv --object-id {PRINCIPAL} --secret-permissions get", (empty,)),
    (f"keyvault secret show {SECRET} --query value -o tsv", SECRET_SETUPS),
    (f"keyvault secret show-deleted {SECRET} -o none", SECRET_SETUPS),
    (f"keyvault secret recover {SECRET} -o none", SECRET_SETUPS),
    (f"keyvault secret set {SECRET} --file {INFRA / 'bicepconfig.json'} --encoding utf-8 -o none", SECRET_SETUPS),
    (f"keyvault secret delete {SECRET} -o none", SECRET_SETUPS),
    (f"keyvault secret delete {SECRET} -o none --only-show-errors", (empty, made)),
    (
        f"role assignment list {LISTENER} {NO_NAMES} --query '[].id' -o tsv",
        (empty, made, denied),
    ),
    (f"role assignment create {LISTENER} --assignee-principal-type ServicePrincipal -o none", (empty, made, denied)),
    (
        (
            f"role assignment create --role 'Key Vault Secrets Officer' --scope {VAULT_SCOPE} "
            f"--assignee-object-id {USER} --assignee-principal-type User"
        ),
        (empty, stranger),
    ),
    (
        (
            f"role assignment create --role 'Key Vault Cook' --scope {VAULT_SCOPE} "
            f"--assignee-object-id {USER} --assignee-principal-type User"
        ),
        (empty,),
    ),
]
COMPARED_ELSEWHERE = {
    "account get-access-token": "its answer is a token, which differs from call to call; the walk of the guide uses it",
    "deployment group create": "it needs a Bicep compiler; test_scripts.py runs it with a stand-in for that",
}


def comparable(answer: Answer) -> tuple[int, str, str]:
    return answer.code, answer.out, answer.err.partition("\n")[0]


@pytest.mark.parametrize(
    ("call", "setup"),
    [pytest.param(call, one, id=f"{one.__name__}: {call[:60]}") for call, setups in CALLS for one in setups],
)
def test_answers_are_the_same(azure: AzureOverHttp, tmp_path_factory: Any, call: str, setup: Setup) -> None:
    """The stand-in ends, prints and complains as the real CLI does, and leaves the same Azure behind."""
    state = model.new()
    setup(state)
    folder: Path = tmp_path_factory.mktemp("stand-in")
    with FakeAzure(folder) as stand_in:
        for each in (azure, stand_in):
            each.save(state)
        answers = [each._carry(shlex.split(call), {}) for each in (azure, stand_in)]
        assert comparable(answers[0]) == comparable(answers[1])
        assert _resources(azure.load()) == _resources(stand_in.load())


def _resources(state: model.State) -> dict[str, Any]:
    return {key: state[key] for key in ("groups", "namespaces", "vaults", "roles", "provider_registered", "keys")}


def test_signed_out(azure: AzureOverHttp, az: RealAz, tmp_path_factory: Any) -> None:
    """Without a login both refuse with the same words."""
    az.forget()
    with FakeAzure(tmp_path_factory.mktemp("stand-in")) as stand_in:
        stand_in.change(signed_in=False)
        for call in ("account show --query name -o tsv", f"relay hyco show {RELAY} -n alice"):
            answers = [each._carry(shlex.split(call), {}) for each in (azure, stand_in)]
            assert comparable(answers[0]) == comparable(answers[1])


def test_every_command_is_compared() -> None:
    """The table of the stand-in has no command that is compared neither here nor in a place that is named here."""
    compared = {command for command in COMMANDS for call, _ in CALLS if call.startswith(command)}
    assert set(COMMANDS) == compared | COMPARED_ELSEWHERE.keys()
