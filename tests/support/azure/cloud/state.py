"""A small Azure: one subscription as plain data, and what each operation does to it.

Two programs answer from it, so that they cannot disagree: small_azure.py as a quick stand-in for `az`, and the HTTP
services of this folder, which the real `az` talks to. A state is a dictionary that a test may set up as it likes; `new`
lists its parts.
Statuses, codes and sentences of what fails are those of the services.
"""

from __future__ import annotations

import base64
import uuid
from typing import Any

TENANT = "11111111-2222-3333-4444-555555555555"
SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000001"
SUBSCRIPTION = f"/subscriptions/{SUBSCRIPTION_ID}"
USER = "66666666-7777-8888-9999-000000000000"
"""Object id of who is signed in."""
USER_NAME = "alice@contoso.com"
LISTENER, SENDER, SECRETS_USER, SECRETS_OFFICER = (
    "26e0b698-aa6d-4085-9386-aadae190014d",
    "26baccc8-eea7-41f1-98f4-1762cc7f685d",
    "4633458b-17de-408a-b874-0445c86b69e6",
    "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
)
ROLE_NAMES = {
    LISTENER: "Azure Relay Listener",
    SENDER: "Azure Relay Sender",
    SECRETS_USER: "Key Vault Secrets User",
    SECRETS_OFFICER: "Key Vault Secrets Officer",
}

State = dict[str, Any]


class Refusal(Exception):
    """The status, code and sentence with which a service refuses a request."""

    def __init__(self, status: int, code: str, message: str, inner: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.inner = status, code, message, inner


def new() -> State:
    """Return a subscription with resource group `debug-rg`, and a Key Vault `contoso-kv` that the user manages."""
    return {
        "signed_in": True,
        "user": USER,
        "subscription": "test subscription",
        "subscriptions": {"test subscription": SUBSCRIPTION_ID, "contoso-dev": SUBSCRIPTION_ID[:-1] + "2"},
        "tokens": {},  # what the quick stand-in prints as access tokens, by resource
        "known_resources": {},  # other resources, by their type and name
        "provider_registered": True,
        "groups": {"debug-rg": "westeurope", "vault-rg": "westeurope"},
        "namespaces": {},
        "taken": [],  # namespaces of others
        "vaults": {"contoso-kv": new_vault("vault-rg")},
        "roles": [],  # object id, role id, scope, type of the object
        "strangers": [],  # object ids that the directory does not know
        "denied": [],  # actions of Azure Resource Manager that are refused, such as Microsoft.Relay/namespaces/read
        "deployments": [],
        "faults": [],
        "file_modes": [],
        "keys": 0,
    }


def new_vault(group: str, *, rbac: bool = True) -> State:
    """Return a Key Vault; `forbidden` lists what its owner may not do with secrets, whatever the kind of the vault."""
    return {"group": group, "rbac": rbac, "policies": {}, "secrets": {}, "deleted": {}, "forbidden": []}


def vault_id(state: State, name: str) -> str:
    return f"{group_id(state['vaults'][name]['group'])}/providers/Microsoft.KeyVault/vaults/{name}"


# --- resources -------------------------------------------------------------------------------------------------------


def allow(state: State, action: str, scope: str) -> None:
    """Refuse an action of Azure Resource Manager that the state denies."""
    if action in state["denied"]:
        raise Refusal(
            403,
            "AuthorizationFailed",
            f"The client '{USER_NAME}' with object id '{state['user']}' does not have authorization to perform action "
            f"'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh "
            "your credentials.",
        )


def missing(what: str, group: str) -> Refusal:
    return Refusal(
        404,
        "ResourceNotFound",
        f"The Resource '{what}' under resource group '{group}' was not found. For more details please go to "
        "https://aka.ms/ARMResourceNotFoundFix",
    )


def check_group(state: State, group: str) -> str:
    """Return the location of a resource group."""
    if group not in state["groups"]:
        raise Refusal(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
    return str(state["groups"][group])


def create_group(state: State, group: str, location: str) -> None:
    allow(state, "Microsoft.Resources/subscriptions/resourcegroups/write", group_id(group))
    state["groups"][group] = location


def group_id(group: str) -> str:
    return f"{SUBSCRIPTION}/resourceGroups/{group}"


def namespace_id(state: State, name: str) -> str:
    return f"{group_id(state['namespaces'][name]['group'])}/providers/Microsoft.Relay/namespaces/{name}"


def namespace_of(state: State, group: str, name: str, verb: str = "read") -> State:
    allow(state, f"Microsoft.Relay/namespaces/{verb}", f"{group_id(group)}/providers/Microsoft.Relay/namespaces/{name}")
    check_group(state, group)
    found: State | None = state["namespaces"].get(name)
    if found is None or found["group"] != group:
        raise missing(f"Microsoft.Relay/namespaces/{name}", group)
    return found


def create_namespace(state: State, group: str, name: str, location: str) -> None:
    scope = f"{group_id(group)}/providers/Microsoft.Relay/namespaces/{name}"
    allow(state, "Microsoft.Relay/namespaces/write", scope)
    check_group(state, group)
    if not state["provider_registered"]:
        raise Refusal(
            409,
            "MissingSubscriptionRegistration",
            "The subscription is not registered to use namespace 'Microsoft.Relay'. See https://aka.ms/rps-not-found "
            "for how to register subscriptions.",
        )
    state["namespaces"].setdefault(name, {"group": group, "location": location, "hcs": {}})


def delete_namespace(state: State, group: str, name: str) -> bool:
    """Delete a namespace, and return whether there was one: Azure accepts the deletion of what is gone."""
    scope = f"{group_id(group)}/providers/Microsoft.Relay/namespaces/{name}"
    allow(state, "Microsoft.Relay/namespaces/delete", scope)
    return state["namespaces"].pop(name, None) is not None


def register_provider(state: State, name: str) -> None:
    allow(state, f"{name}/register/action", SUBSCRIPTION)
    if name == "Microsoft.Relay":
        state["provider_registered"] = True


def is_available(state: State, name: str) -> bool:
    return name not in state["namespaces"] and name not in state["taken"]


def new_hc(*, authorized: bool = True, metadata: str | None = None) -> State:
    return {"authorized": authorized, "listeners": 0, "metadata": metadata, "rules": {}}


def hc_of(state: State, group: str, namespace: str, name: str) -> State:
    hcs = namespace_of(state, group, namespace)["hcs"]
    if name not in hcs:
        raise missing(f"Microsoft.Relay/namespaces/{namespace}/hybridConnections/{name}", group)
    found: State = hcs[name]
    return found


def create_hc(
    state: State, group: str, namespace: str, name: str, *, authorized: bool, metadata: str | None = None
) -> None:
    hcs = namespace_of(state, group, namespace)["hcs"]
    allow(state, "Microsoft.Relay/namespaces/hybridConnections/write", f"{namespace_id(state, namespace)}/{name}")
    hcs.setdefault(name, new_hc(authorized=authorized, metadata=metadata))


def delete_hc(state: State, group: str, namespace: str, name: str) -> bool:
    """Delete a hybrid connection, and return whether there was one."""
    hcs = namespace_of(state, group, namespace)["hcs"]
    allow(state, "Microsoft.Relay/namespaces/hybridConnections/delete", f"{namespace_id(state, namespace)}/{name}")
    return hcs.pop(name, None) is not None


def rule_of(state: State, group: str, namespace: str, hc: str, name: str) -> State:
    rules = hc_of(state, group, namespace, hc)["rules"]
    if name not in rules:
        path = f"Microsoft.Relay/namespaces/{namespace}/hybridConnections/{hc}/authorizationRules/{name}"
        raise missing(path, group)
    found: State = rules[name]
    return found


def sas_key(number: int) -> str:
    """Return the key that is issued as the `number`-th."""
    return base64.b64encode(f"SAS-key-number-{number:04d}-of-the-test!".encode()).decode()


def new_key(state: State) -> str:
    state["keys"] += 1
    return sas_key(state["keys"])


def new_rule(state: State, rights: list[str]) -> State:
    return {"rights": rights, "PrimaryKey": new_key(state), "SecondaryKey": new_key(state)}


def create_rule(state: State, group: str, namespace: str, hc: str, name: str, rights: list[str]) -> None:
    hc_of(state, group, namespace, hc)["rules"][name] = new_rule(state, rights)


def renew_key(state: State, group: str, namespace: str, hc: str, name: str, key: str) -> None:
    rule_of(state, group, namespace, hc, name)[key] = new_key(state)


def connection_string(namespace: str, hc: str, rule: str, key: str) -> str:
    return (
        f"Endpoint=sb://{namespace}.servicebus.windows.net/;SharedAccessKeyName={rule};"
        f"SharedAccessKey={key};EntityPath={hc}"
    )


def keys_of(state: State, group: str, namespace: str, hc: str, name: str) -> dict[str, str]:
    rule = rule_of(state, group, namespace, hc, name)
    return {
        "keyName": name,
        "primaryKey": rule["PrimaryKey"],
        "secondaryKey": rule["SecondaryKey"],
        "primaryConnectionString": connection_string(namespace, hc, name, rule["PrimaryKey"]),
        "secondaryConnectionString": connection_string(namespace, hc, name, rule["SecondaryKey"]),
    }


# --- roles -----------------------------------------------------------------------------------------------------------


def role_id(role: str) -> str:
    return f"{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/{role}"


def read_roles(state: State, scope: str) -> None:
    allow(state, "Microsoft.Authorization/roleAssignments/read", scope)


def assign(state: State, principal: str, role: str, scope: str, kind: str) -> None:
    """Give a role, once; whoever manages the secrets of a vault may do all with them."""
    allow(state, "Microsoft.Authorization/roleAssignments/write", scope)
    if principal in state["strangers"]:
        raise Refusal(
            400,
            "PrincipalNotFound",
            f"Principal {principal.replace('-', '')} does not exist in the directory {TENANT}. Check that you have the "
            "correct principal ID. If you are creating this principal and then immediately assigning a role, this "
            "error might be related to a replication delay. In this case, set the role assignment principalType "
            "property to a value, such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype",
        )
    if any([principal, role, scope] == given[:3] for given in state["roles"]):
        raise Refusal(409, "RoleAssignmentExists", "The role assignment already exists.")
    state["roles"].append([principal, role, scope, kind])
    for name, vault in state["vaults"].items():
        if vault["rbac"] and (principal, role) == (state["user"], SECRETS_OFFICER) and scope == vault_id(state, name):
            vault["forbidden"] = []


def assignment_id(state: State, number: int) -> str:
    principal, role, scope, _ = state["roles"][number]
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{principal} {role} {scope}")
    return f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}"
