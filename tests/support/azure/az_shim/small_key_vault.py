"""The commands `az keyvault` of the stand-in; see small_azure.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.azure.az_shim.failure import Failure, Options
from tests.support.azure.cloud import state as model
from tests.support.azure.cloud import vaults
from tests.support.azure.cloud.state import TENANT, State

UPDATED = "2026-11-21T08:00:00+00:00"


def _vault_of(state: State, options: Options) -> str:
    name = options["--name"][0]
    if name not in state["vaults"]:
        raise Failure(f"The Vault '{name}' not found within subscription.")
    return name


def vault_show(state: State, options: Options) -> Any:
    return vault_facts(state, _vault_of(state, options))


def vault_facts(state: State, name: str) -> Any:
    vaults.read_vault(state, name)
    vault = state["vaults"][name]
    permissions = {"certificates": None, "keys": None, "storage": None}
    policies = [
        {"applicationId": None, "objectId": who, "permissions": {**permissions, "secrets": verbs}, "tenantId": TENANT}
        for who, verbs in vault["policies"].items()
    ]
    empty = (
        *(
            "createMode",
            "enablePurgeProtection",
            "enabledForDeployment",
            "enabledForDiskEncryption",
            "hsmPoolResourceId",
        ),
        *("enabledForTemplateDeployment", "networkAcls", "privateEndpointConnections", "publicNetworkAccess"),
        "softDeleteRetentionInDays",
    )
    properties = {
        **dict.fromkeys(empty),
        "accessPolicies": policies,
        "enableRbacAuthorization": vault["rbac"],
        "enableSoftDelete": True,
        "provisioningState": "Succeeded",
        "sku": {"family": "A", "name": "standard"},
        "tenantId": TENANT,
        "vaultUri": f"https://{name}.vault.azure.net/",
    }
    facts = {
        "location": "westeurope",
        "name": name,
        "systemData": None,
        "tags": {},
        "type": "Microsoft.KeyVault/vaults",
    }
    return {"id": model.vault_id(state, name), **facts, "resourceGroup": vault["group"], "properties": properties}


def vault_create(state: State, options: Options) -> Any:
    name, group = options["--name"][0], options["--resource-group"][0]
    if state["vaults"].get(name, {}).get("group") == group:
        raise Failure(f"The specified vault: {name} already exists")
    rbac = options.get("--enable-rbac-authorization", ["true"]) == ["true"]
    policies = {} if rbac else {state["user"]: ["all"]}
    vaults.create_vault(state, group, name, rbac=rbac, policies=policies)
    return vault_show(state, options)


def vault_set_policy(state: State, options: Options) -> Any:
    name = _vault_of(state, options)
    vaults.read_vault(state, name)
    vault = state["vaults"][name]
    if vault["rbac"]:
        raise Failure(
            "Cannot set policies to a vault with '--enable-rbac-authorization' specified",
        )
    given = {options["--object-id"][0]: options["--secret-permissions"]}
    vaults.set_policies(state, name, {**vault["policies"], **given})
    return vault_show(state, options)


def _secret_of(state: State, options: Options) -> tuple[State, str, str]:
    vault = options["--vault-name"][0]
    if vault not in state["vaults"]:
        raise Failure(f"<urllib3.connection.HTTPSConnection>: Failed to resolve '{vault}.vault.azure.net'")
    return state, vault, options["--name"][0]


def secret_show(state: State, options: Options) -> Any:
    return {"value": vaults.get_secret(*_secret_of(state, options)), "attributes": {"updated": UPDATED}}


def secret_set(state: State, options: Options) -> Any:
    if ("--value" in options) == ("--file" in options):
        raise Failure("incorrect usage: [Required] --value VALUE | --file PATH")
    if "--file" in options:
        path = Path(options["--file"][0])
        state["file_modes"].append(path.stat().st_mode & 0o777 | path.parent.stat().st_mode & 0o077)
        value = path.read_text()
    else:
        value = options["--value"][0]
    vaults.set_secret(*_secret_of(state, options), value)
    return {"value": value}


def secret_delete(state: State, options: Options) -> Any:
    vaults.delete_secret(*_secret_of(state, options))


def secret_show_deleted(state: State, options: Options) -> Any:
    vaults.check_deleted(*_secret_of(state, options))
    return {"value": None}


def secret_recover(state: State, options: Options) -> Any:
    vaults.recover_secret(*_secret_of(state, options))
