"""The resource providers Microsoft.Relay and Microsoft.KeyVault, which management.azure.com hands requests to."""

from __future__ import annotations

from typing import Any

from tests.support.azure.cloud import state as model
from tests.support.azure.cloud import vaults
from tests.support.azure.cloud.arm import GROUP, SUB, arm
from tests.support.azure.cloud.state import TENANT, Refusal
from tests.support.azure.cloud.web import Reply, Request

NAMESPACES = GROUP + "/providers/Microsoft.Relay/namespaces"
NAMESPACE = NAMESPACES + "/{namespace}"
HC = NAMESPACE + "/hybridConnections/{hc}"
RULE = HC + "/authorizationRules/{rule}"
VAULT = GROUP + "/providers/Microsoft.KeyVault/vaults/{vault}"

# --- Microsoft.Relay -------------------------------------------------------------------------------------------------


def _namespace(cloud: Any, name: str) -> dict[str, Any]:
    found = cloud.state["namespaces"][name]
    facts = {"name": name, "type": "Microsoft.Relay/Namespaces", "location": found["location"], "tags": {}}
    properties = {"provisioningState": "Succeeded", "serviceBusEndpoint": f"https://{name}.servicebus.windows.net:443/"}
    sku = {"name": "Standard", "tier": "Standard"}
    return {"id": model.namespace_id(cloud.state, name), **facts, "sku": sku, "properties": properties}


@arm("POST", SUB + "/providers/Microsoft.Relay/CheckNameAvailability")
def name_available(cloud: Any, asked: Request, subscription: str) -> Reply:
    name = asked.json["name"]
    if model.is_available(cloud.state, name):
        return Reply(200, {"nameAvailable": True, "reason": "None", "message": ""})
    reason = {"reason": "NameInUse", "message": f"The specified service namespace '{name}' is not available."}
    return Reply(200, {"nameAvailable": False, **reason})


@arm("GET", NAMESPACE)
def namespace_get(cloud: Any, asked: Request, subscription: str, group: str, namespace: str) -> Reply:
    model.namespace_of(cloud.state, group, namespace)
    return Reply(200, _namespace(cloud, namespace))


@arm("PUT", NAMESPACE)
def namespace_put(cloud: Any, asked: Request, subscription: str, group: str, namespace: str) -> Reply:
    model.create_namespace(cloud.state, group, namespace, asked.json["location"])
    return Reply(201, _namespace(cloud, namespace))


@arm("DELETE", NAMESPACE)
def namespace_delete(cloud: Any, asked: Request, subscription: str, group: str, namespace: str) -> Reply:
    return Reply(200 if model.delete_namespace(cloud.state, group, namespace) else 204)


def _hc(cloud: Any, group: str, namespace: str, name: str) -> dict[str, Any]:
    found = model.hc_of(cloud.state, group, namespace, name)
    properties = {
        "requiresClientAuthorization": found["authorized"],
        "listenerCount": found["listeners"],
        "userMetadata": found["metadata"],
    }
    path = f"{model.namespace_id(cloud.state, namespace)}/hybridConnections/{name}"
    return {"id": path, "name": name, "type": "Microsoft.Relay/Namespaces/HybridConnections", "properties": properties}


@arm("GET", NAMESPACE + "/hybridConnections")
def hc_list(cloud: Any, asked: Request, subscription: str, group: str, namespace: str) -> Reply:
    names = model.namespace_of(cloud.state, group, namespace)["hcs"]
    return Reply(200, {"value": [_hc(cloud, group, namespace, name) for name in names]})


@arm("GET", HC)
def hc_get(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str) -> Reply:
    return Reply(200, _hc(cloud, group, namespace, hc))


@arm("PUT", HC)
def hc_put(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str) -> Reply:
    properties = asked.json.get("properties") or {}
    authorized, metadata = properties.get("requiresClientAuthorization", True), properties.get("userMetadata")
    model.create_hc(cloud.state, group, namespace, hc, authorized=authorized, metadata=metadata)
    return Reply(200, _hc(cloud, group, namespace, hc))


@arm("DELETE", HC)
def hc_delete(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str) -> Reply:
    return Reply(200 if model.delete_hc(cloud.state, group, namespace, hc) else 204)


def _rule(cloud: Any, group: str, namespace: str, hc: str, name: str) -> dict[str, Any]:
    rights = model.rule_of(cloud.state, group, namespace, hc, name)["rights"]
    path = f"{model.namespace_id(cloud.state, namespace)}/hybridConnections/{hc}/authorizationRules/{name}"
    kind = "Microsoft.Relay/Namespaces/HybridConnections/AuthorizationRules"
    return {"id": path, "name": name, "type": kind, "properties": {"rights": rights}}


@arm("GET", RULE)
def rule_get(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str, rule: str) -> Reply:
    return Reply(200, _rule(cloud, group, namespace, hc, rule))


@arm("PUT", RULE)
def rule_put(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str, rule: str) -> Reply:
    model.create_rule(cloud.state, group, namespace, hc, rule, asked.json["properties"]["rights"])
    return Reply(200, _rule(cloud, group, namespace, hc, rule))


@arm("POST", RULE + "/listKeys")
def rule_keys(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str, rule: str) -> Reply:
    return Reply(200, model.keys_of(cloud.state, group, namespace, hc, rule))


@arm("POST", RULE + "/regenerateKeys")
def rule_renew(cloud: Any, asked: Request, subscription: str, group: str, namespace: str, hc: str, rule: str) -> Reply:
    model.renew_key(cloud.state, group, namespace, hc, rule, asked.json["keyType"])
    return Reply(200, model.keys_of(cloud.state, group, namespace, hc, rule))


# --- Microsoft.KeyVault ----------------------------------------------------------------------------------------------


def _vault(cloud: Any, name: str) -> dict[str, Any]:
    vault = cloud.state["vaults"][name]
    policies = [
        {"tenantId": TENANT, "objectId": who, "permissions": {"secrets": verbs}}
        for who, verbs in vault["policies"].items()
    ]
    properties = {
        "sku": {"family": "A", "name": "standard"},
        "tenantId": TENANT,
        "accessPolicies": policies,
        "enableRbacAuthorization": vault["rbac"],
        "enableSoftDelete": True,
        "vaultUri": f"https://{name}.vault.azure.net/",
        "provisioningState": "Succeeded",
    }
    facts = {"name": name, "type": "Microsoft.KeyVault/vaults", "location": "westeurope", "tags": {}}
    return {"id": model.vault_id(cloud.state, name), **facts, "properties": properties}


@arm("GET", VAULT)
def vault_get(cloud: Any, asked: Request, subscription: str, group: str, vault: str) -> Reply:
    if cloud.state["vaults"].get(vault, {}).get("group") != group:
        model.check_group(cloud.state, group)
        raise model.missing(f"Microsoft.KeyVault/vaults/{vault}", group)
    vaults.read_vault(cloud.state, vault)
    return Reply(200, _vault(cloud, vault))


@arm("PUT", VAULT)
def vault_put(cloud: Any, asked: Request, subscription: str, group: str, vault: str) -> Reply:
    given = asked.json["properties"]
    policies = _policies(given)
    if cloud.state["vaults"].get(vault, {}).get("group") == group:
        vaults.set_policies(cloud.state, vault, policies)
    else:
        vaults.create_vault(
            cloud.state, group, vault, rbac=bool(given.get("enableRbacAuthorization")), policies=policies
        )
    return Reply(200, _vault(cloud, vault))


def _policies(properties: dict[str, Any]) -> dict[str, list[str]]:
    return {
        each["objectId"]: [verb.lower() for verb in each["permissions"].get("secrets") or []]
        for each in properties.get("accessPolicies") or []
    }


@arm("PUT", VAULT + "/accessPolicies/{operation}")
def vault_policies(cloud: Any, asked: Request, subscription: str, group: str, vault: str, operation: str) -> Reply:
    given = _policies(asked.json["properties"])
    kept = {} if operation == "replace" else cloud.state["vaults"][vault]["policies"]
    vaults.set_policies(cloud.state, vault, {**kept, **given})
    return Reply(200, _vault(cloud, vault))


@arm("GET", SUB + "/providers/Microsoft.KeyVault/locations/{location}/deletedVaults/{vault}")
def deleted_vault(cloud: Any, asked: Request, subscription: str, location: str, vault: str) -> Reply:
    raise Refusal(404, "DeletedVaultNotFound", f"The specified deleted vault '{vault}' does not exist.")


@arm("POST", SUB + "/providers/Microsoft.KeyVault/checkNameAvailability")
def vault_name_available(cloud: Any, asked: Request, subscription: str) -> Reply:
    name = asked.json["name"]
    if name not in cloud.state["vaults"]:
        return Reply(200, {"nameAvailable": True})
    reason = {"reason": "AlreadyExists", "message": f"The vault name '{name}' is already in use."}
    return Reply(200, {"nameAvailable": False, **reason})
