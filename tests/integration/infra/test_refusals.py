"""Failures of the real `az`: the scripts report each in one sentence with a hint, and exit with the documented code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.support.azure.az_shim.kit import AGENT, PRINCIPAL
from tests.support.azure.cloud import vaults
from tests.support.azure.cloud.cli import RealAz, needs_az
from tests.support.azure.cloud.kit import AzureOverHttp
from tests.support.azure.cloud.state import Refusal

pytestmark = needs_az

CREATE, ROTATE, DELETE = (
    ("create_relay.sh",),
    ("rotate_keys.sh", "--phase", "secondary"),
    ("delete_relay.sh", "--yes"),
)
FIREWALL = Refusal(
    403, "Forbidden", "Client address is not authorized and caller is not a trusted service.", "ForbiddenByFirewall"
)
CONFLICT = Refusal(409, "Conflict", "Secret is currently being recovered, retry later.", "ObjectIsBeingRecovered")
BROKEN = Refusal(400, "BadRequest", "The request is bad.")


def denies(*actions: str) -> Callable[[AzureOverHttp], None]:
    return lambda azure: azure.change(denied=list(actions))


def vault(**values: object) -> Callable[[AzureOverHttp], None]:
    return lambda azure: azure.change_vault(**values)


def no_rule(azure: AzureOverHttp) -> None:
    azure.change_hc(rules={})


def no_hc(azure: AzureOverHttp) -> None:
    azure.change(namespaces={"contoso-debug": {"group": "debug-rg", "location": "westeurope", "hcs": {}}})


class Case(NamedTuple):
    """What is wrong, who meets it, and what he reads."""

    id: str
    script: tuple[str, ...]
    setup: Callable[[AzureOverHttp], object]
    code: int
    sentence: str
    hint: str


POLICY = vault(rbac=False, forbidden=list(vaults.ALL))
OFFICER = "make sure that you have the role 'Key Vault Secrets Officer' on the vault"
SET_POLICY = "az keyvault set-policy -n contoso-kv --object-id"
README = "see infra/README.md for the roles"
CASES = [
    Case(
        "unknown vault",
        (*CREATE, "--key-vault", "other-kv"),
        id,
        3,
        "Key Vault 'other-kv' was not found",
        "az keyvault create",
    ),
    Case("vault by role", CREATE, vault(forbidden=["get"]), 4, "refused 'az keyvault secret'", OFFICER),
    Case(
        "vault by role, writing",
        CREATE,
        vault(forbidden=["set"], secrets={}),
        4,
        "refused 'az keyvault secret'",
        OFFICER,
    ),
    Case("vault by role, rotating", ROTATE, vault(forbidden=["get"]), 4, "refused 'az keyvault secret'", OFFICER),
    Case("vault by role, deleting", DELETE, vault(forbidden=["delete"]), 4, "refused 'az keyvault secret'", OFFICER),
    Case("vault by policy", CREATE, POLICY, 4, "its access policies do not allow it", SET_POLICY),
    Case("vault by policy, deleting", DELETE, POLICY, 4, "its access policies do not allow it", SET_POLICY),
    Case(
        "firewall",
        CREATE,
        lambda azure: azure.refuse("GET", "/secrets/", FIREWALL),
        4,
        "the firewall of Key Vault 'contoso-kv' blocks this machine",
        "allow this machine's IP address",
    ),
    Case(
        "vault is not mine", CREATE, denies("Microsoft.KeyVault/vaults/read"), 4, "refused 'az keyvault show'", README
    ),
    Case(
        "namespace is not mine",
        CREATE,
        denies("Microsoft.Relay/namespaces/read"),
        4,
        "refused 'az relay namespace'",
        README,
    ),
    Case(
        "delete is not mine",
        DELETE,
        denies("Microsoft.Relay/namespaces/hybridConnections/delete"),
        4,
        "refused 'az relay hyco'",
        README,
    ),
    Case(
        "roles are not mine",
        (*CREATE, "--agent-principal", PRINCIPAL),
        denies("Microsoft.Authorization/roleAssignments/write"),
        4,
        "refused 'az role assignment'",
        README,
    ),
    Case(
        "unknown principal",
        (*CREATE, "--agent-principal", PRINCIPAL),
        lambda azure: azure.change(strangers=[PRINCIPAL]),
        3,
        f"Principal {PRINCIPAL.replace('-', '')} does not exist in the directory",
        "use the object id, not the client id",
    ),
    Case("empty principal", (*CREATE, "--agent-principal", ""), id, 2, "has no managed identity", "Compute clusters"),
    Case(
        "null principal", (*CREATE, "--agent-principal", "None"), id, 2, "has no managed identity", "Compute clusters"
    ),
    Case(
        "unknown subscription",
        (*CREATE, "--subscription", "nobody"),
        id,
        3,
        "subscription 'nobody' was not found",
        "az account list",
    ),
    Case(
        "name is taken",
        CREATE,
        lambda azure: azure.change(namespaces={}, taken=["contoso-debug"]),
        3,
        "is in use",
        "choose another",
    ),
    Case(
        "no group",
        CREATE,
        lambda azure: azure.change(groups={"vault-rg": "x"}),
        3,
        "resource group 'debug-rg' was not found",
        "add --location REGION",
    ),
    Case(
        "registration is not mine",
        CREATE,
        lambda azure: azure.change(
            namespaces={}, provider_registered=False, denied=["Microsoft.Relay/register/action"]
        ),
        3,
        "the subscription is not registered for Microsoft.Relay",
        "az provider register --namespace Microsoft.Relay --wait",
    ),
    Case(
        "no namespace",
        ROTATE,
        lambda azure: azure.change(namespaces={}),
        5,
        "Relay namespace 'contoso-debug' was not found",
        "check both names",
    ),
    Case(
        "no hybrid connection", ROTATE, no_hc, 5, "has no hybrid connection 'alice'", "create it with create_relay.sh"
    ),
    Case("no rule", ROTATE, no_rule, 5, "has no rule 'agent-listen'", "run create_relay.sh with the same names"),
    Case(
        "no secret", ROTATE, vault(secrets={}), 3, f"no complete connection string in '{AGENT}'", "run create_relay.sh"
    ),
    Case(
        "something else",
        CREATE,
        lambda azure: azure.refuse("GET", "/hybridConnections/", BROKEN),
        1,
        "'az relay hyco' failed ((BadRequest) The request is bad.)",
        "completed steps are skipped",
    ),
    Case(
        "busy for long",
        CREATE,
        lambda azure: (azure.change_vault(secrets={}), azure.refuse("PUT", "/secrets/", CONFLICT, times=6)),
        6,
        "Azure is still busy after 6 attempts to run 'az keyvault secret'",
        "completed steps are skipped",
    ),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_refusal(deployed: AzureOverHttp, names: tuple[str, ...], case: Case) -> None:
    """The last line is the script's sentence with its hint, and the exit code is the documented one."""
    case.setup(deployed)
    script, *options = case.script
    done = deployed.run(script, *names, *options)
    last = done.err.splitlines()[-1]
    assert (case.code, f"{script}: error:") == (done.code, last[: len(script) + 8])
    sentence, _, hint = last.partition(". hint: ")
    assert case.sentence in sentence
    assert case.hint in hint
    assert [] == [line for line in done.err.splitlines()[:-1] if "retrying" not in line]


@pytest.mark.parametrize("script", [CREATE, ROTATE, DELETE])
def test_signed_out(deployed: AzureOverHttp, az: RealAz, names: tuple[str, ...], script: tuple[str, ...]) -> None:
    """Who is not signed in reads how to sign in."""
    az.forget()
    done = deployed.run(script[0], *names, *script[1:])
    assert (4, f"{script[0]}: error: you are not signed in to Azure.") == (done.code, done.err.partition(" hint:")[0])


def test_expired_login(deployed: AzureOverHttp, az: RealAz, names: tuple[str, ...]) -> None:
    """Who was signed in, but must sign in again, reads the same."""
    deployed.change(signed_in=False)
    az.expire()
    done = deployed.run("create_relay.sh", *names)
    assert (4, "create_relay.sh: error: you are not signed in to Azure.") == (
        done.code,
        done.err.partition(" hint:")[0],
    )


def test_conflict_is_waited_out(azure: AzureOverHttp, names: tuple[str, ...]) -> None:
    """A secret that is still being recovered is written as soon as Key Vault lets it be written."""
    azure.refuse("PUT", "/secrets/", CONFLICT, times=2)
    done = azure.run("create_relay.sh", *names, "--entra")
    assert 0 == done.code
    assert 2 == done.err.count("retrying")


def test_unknown_vault_when_deleting(deployed: AzureOverHttp, names: tuple[str, ...]) -> None:
    """delete_relay.sh asks the vault's own address: where that leads nowhere it names what may be wrong."""
    done = deployed.run("delete_relay.sh", *names, "--key-vault", "nowhere-kv", "--yes")
    assert 6 == done.code
    assert "cannot reach Azure. hint: check the network, HTTPS_PROXY and the name of the Key Vault" in done.err
