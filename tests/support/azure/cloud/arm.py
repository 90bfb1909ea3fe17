"""management.azure.com and graph.microsoft.com: subscriptions, groups, providers, resources, roles, deployments."""

from __future__ import annotations

import json
from typing import Any

from tests.support.azure.cloud import deployment
from tests.support.azure.cloud import state as model
from tests.support.azure.cloud.state import TENANT, USER_NAME, Refusal
from tests.support.azure.cloud.web import Reply, Request, Routes

arm = Routes()
graph = Routes()
SUB = "/subscriptions/{subscription}"
GROUP = SUB + "/resourcegroups/{group}"
ROLES = "/{*scope*}/providers/Microsoft.Authorization"


@graph("GET", "/v1.0/me")
def me(cloud: Any, asked: Request) -> Reply:
    return Reply(200, {"id": cloud.state["user"], "displayName": "Alice", "userPrincipalName": USER_NAME})


@graph("POST", "/v1.0/directoryObjects/getByIds")
def names_of_ids(cloud: Any, asked: Request) -> Reply:
    """Know the user alone: `az` then prints the other ids as they are."""
    known = {"@odata.type": "#microsoft.graph.user", "id": cloud.state["user"], "userPrincipalName": USER_NAME}
    return Reply(200, {"value": [known] if cloud.state["user"] in asked.json["ids"] else []})


# --- subscriptions ---------------------------------------------------------------------------------------------------


@arm("GET", "/tenants")
def tenants(cloud: Any, asked: Request) -> Reply:
    return Reply(200, {"value": [{"id": f"/tenants/{TENANT}", "tenantId": TENANT, "displayName": "Contoso"}]})


@arm("GET", "/subscriptions")
def subscriptions(cloud: Any, asked: Request) -> Reply:
    facts = {"state": "Enabled", "tenantId": TENANT, "authorizationSource": "RoleBased"}
    listed = [
        {"id": f"/subscriptions/{number}", "subscriptionId": number, "displayName": name, **facts}
        for name, number in cloud.state["subscriptions"].items()
    ]
    return Reply(200, {"value": listed})


@arm("POST", SUB + "/providers/{name}/register")
def register(cloud: Any, asked: Request, subscription: str, name: str) -> Reply:
    model.register_provider(cloud.state, name)
    return provider(cloud, asked, subscription, name)


@arm("GET", SUB + "/providers/{name}")
def provider(cloud: Any, asked: Request, subscription: str, name: str) -> Reply:
    registered = name != "Microsoft.Relay" or cloud.state["provider_registered"]
    types = [
        {"resourceType": kind, "apiVersions": ["2024-04-01"], "locations": ["West Europe"]}
        for kind in ("workspaces", "workspaces/computes", "namespaces", "vaults")
    ]
    content = {"id": f"{model.SUBSCRIPTION}/providers/{name}", "namespace": name, "resourceTypes": types}
    return Reply(200, {**content, "registrationState": "Registered" if registered else "NotRegistered"})


# --- resource groups and resources -----------------------------------------------------------------------------------


def _group(name: str, location: str) -> dict[str, Any]:
    facts = {"name": name, "type": "Microsoft.Resources/resourceGroups", "location": location}
    return {"id": model.group_id(name), **facts, "properties": {"provisioningState": "Succeeded"}}


@arm("HEAD", GROUP)
def group_exists(cloud: Any, asked: Request, subscription: str, group: str) -> Reply:
    return Reply(204 if group in cloud.state["groups"] else 404)


@arm("GET", GROUP)
def group_get(cloud: Any, asked: Request, subscription: str, group: str) -> Reply:
    return Reply(200, _group(group, model.check_group(cloud.state, group)))


@arm("PUT", GROUP)
def group_put(cloud: Any, asked: Request, subscription: str, group: str) -> Reply:
    model.create_group(cloud.state, group, asked.json["location"])
    return Reply(201, _group(group, asked.json["location"]))


@arm("GET", SUB + "/resources")
def resources(cloud: Any, asked: Request, subscription: str) -> Reply:
    """List the vaults: `az keyvault` finds the resource group of one in this way."""
    listed = [
        {
            "id": model.vault_id(cloud.state, name),
            "name": name,
            "type": "Microsoft.KeyVault/vaults",
            "location": "westeurope",
        }
        for name in cloud.state["vaults"]
        if "Microsoft.KeyVault/vaults" in asked.query.get("$filter", "")
    ]
    return Reply(200, {"value": listed})


@arm("GET", GROUP + "/providers/{provider}/workspaces/{parent}/{child_kind}/{name}")
def resource_get(
    cloud: Any, asked: Request, subscription: str, group: str, provider: str, parent: str, child_kind: str, name: str
) -> Reply:
    """Know what a test has put into `known_resources`, such as a cluster of Azure ML with its identity."""
    path = f"{provider}/workspaces/{parent}/{child_kind}/{name}"
    if path not in cloud.state["known_resources"]:
        raise model.missing(path, group)
    facts = {
        "id": f"{model.group_id(group)}/providers/{path}",
        "name": name,
        "type": f"{provider}/workspaces/{child_kind}",
    }
    return Reply(200, {**facts, **cloud.state["known_resources"][path]})


# --- roles -----------------------------------------------------------------------------------------------------------


@arm("GET", ROLES + "/roleDefinitions")
def role_definitions(cloud: Any, asked: Request, scope: str) -> Reply:
    wanted = asked.query.get("$filter", "")
    listed = [
        {"id": model.role_id(role), "name": role, "properties": {"roleName": name, "type": "BuiltInRole"}}
        for role, name in model.ROLE_NAMES.items()
        if not wanted or f"'{name}'" in wanted
    ]
    return Reply(200, {"value": listed})


def _assignment(cloud: Any, number: int) -> dict[str, Any]:
    principal, role, scope, kind = cloud.state["roles"][number]
    path = model.assignment_id(cloud.state, number)
    content = {"roleDefinitionId": model.role_id(role), "principalId": principal, "principalType": kind, "scope": scope}
    kind = "Microsoft.Authorization/roleAssignments"
    return {"id": path, "name": path.rpartition("/")[2], "type": kind, "properties": content}


@arm("GET", ROLES + "/roleAssignments")
def role_assignments(cloud: Any, asked: Request, scope: str) -> Reply:
    model.read_roles(cloud.state, f"/{scope}")
    here = [number for number, given in enumerate(cloud.state["roles"]) if f"/{scope}".lower() == given[2].lower()]
    return Reply(200, {"value": [_assignment(cloud, number) for number in here]})


@arm("PUT", ROLES + "/roleAssignments/{name}")
def role_assign(cloud: Any, asked: Request, scope: str, name: str) -> Reply:
    given = asked.json["properties"]
    role = given["roleDefinitionId"].rpartition("/")[2]
    model.assign(cloud.state, given["principalId"], role, f"/{scope}", given.get("principalType", "User"))
    return Reply(201, _assignment(cloud, len(cloud.state["roles"]) - 1))


# --- deployments -----------------------------------------------------------------------------------------------------

DEPLOYMENT = GROUP + "/providers/Microsoft.Resources/deployments/{name}"


def _deployment(cloud: Any, group: str, name: str) -> dict[str, Any]:
    path = f"{model.group_id(group)}/providers/Microsoft.Resources/deployments/{name}"
    facts = {"provisioningState": "Succeeded", "outputs": {}, "outputResources": []}
    return {"id": path, "name": name, "type": "Microsoft.Resources/deployments", "properties": facts}


@arm("POST", DEPLOYMENT + "/validate")
def validate(cloud: Any, asked: Request, subscription: str, group: str, name: str) -> Reply:
    model.check_group(cloud.state, group)
    return Reply(200, _deployment(cloud, group, name))


@arm("PUT", DEPLOYMENT)
def deploy(cloud: Any, asked: Request, subscription: str, group: str, name: str) -> Reply:
    """Check the parameters against the template as the service does, then make what main.bicep describes."""
    # `az` writes the name of this field without quotes, which the service understands.
    given = json.loads(asked.body.replace(b", template:{", b', "template":{'))["properties"]
    known = given["template"]["parameters"]
    if unknown := [each for each in given["parameters"] if each not in known]:
        text = (
            "Deployment template validation failed: 'The following parameters were supplied, but do not correspond to "
        )
        raise Refusal(400, "InvalidTemplate", f"{text}any parameters defined in the template: '{', '.join(unknown)}'.")
    deployment.deploy(cloud.state, group, {each: value["value"] for each, value in given["parameters"].items()})
    return Reply(201, _deployment(cloud, group, name))


@arm("GET", DEPLOYMENT)
def deployment_get(cloud: Any, asked: Request, subscription: str, group: str, name: str) -> Reply:
    return Reply(200, _deployment(cloud, group, name))


@arm("GET", DEPLOYMENT + "/operationStatuses/{operation}")
def operation(cloud: Any, asked: Request, **_: str) -> Reply:
    return Reply(200, {"status": "Succeeded"})
