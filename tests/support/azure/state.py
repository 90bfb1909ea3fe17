"""A small Azure: one subscription as plain data, and what each operation does to it.

Two programs answer from it, so that they cannot disagree: small_azure.py as a quick stand-in for `az`, and the HTTP services
of this folder, which the real `az` talks to. A state is a dictionary that a test may set up as it likes; `new` lists its parts.
Statuses, codes and sentences of what fails are those of the services.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

TENANT = "11111111-2222-3333-4444-555555555555"
SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000001"
SUBSCRIPTION = f"/subscriptions/{SUBSCRIPTION_ID}"
USER = "66666666-7777-8888-9999-000000000000"
"""Object id of who is signed in."""
USER_NAME = "alice@contoso.com"
ROLE_NAMES = {
    "26e0b698-aa6d-4085-9386-aadae190014d": "Azure Relay Listener",
    "26baccc8-eea7-41f1-98f4-1762cc7f685d": "Azure Relay Sender",
    "4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
    "b86a8fe4-44ce-4948-aee5-eccb2c155cd7": "Key Vault Secrets Officer",
}
MANAGES_SECRETS = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7"
ALL = ("get", "set", "delete", "recover")
"""The permissions on secrets that the commands here need."""
_ACTIONS = {
    "get": "secrets/getSecret/action",
    "set": "secrets/setSecret/action",
    "delete": "secrets/delete",
    "recover": "secrets/recover/action",
}

State = dict[str, Any]


class Refusal(Exception):
    """The status, code and sentence with which a service refuses a request."""

    def __init__(self, status: int, code: str, message: str, inner: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.inner = status, code, message, inner


def new() -> State:
    """Return a subscription with a resource group `debug-rg` and a Key Vault `contoso-kv`, whose secrets are ours."""
    return {
        "signed_in": True,
        "user": USER,
        "subscription": "test subscription",
        "subscriptions": {"test subscription": SUBSCRIPTION_ID, "contoso-dev": SUBSCRIPTION_ID[:-1] + "2"},
        "tokens": {},  # what the quick stand-in prints as access tokens, by resource
        "known_resources": {},  # other resources, by their type and name
        "provider_registered": True,
        "groups": {"debug-rg": "westeurope"},
        "namespaces": {},
        "taken": [],  # namespaces of others
        "vaults": {"contoso-kv": new_vault("vault-rg")},
        "roles": [],  # object id, role id, scope, type of the object
        "strangers": [],  # object ids that the directory does not know
        "denied": [],  # actions of Azure Resource Manager that the user may not do, such as Microsoft.Relay/namespaces/read
        "deployments": [],
        "faults": [],
        "file_modes": [],
        "keys": 0,
    }


def new_vault(group: str, *, rbac: bool = True) -> State:
    """Return a Key Vault; `forbidden` lists what its owner may not do with secrets, whatever the kind of the vault."""
    return {"group": group, "rbac": rbac, "policies": {}, "secrets": {}, "deleted": {}, "forbidden": []}


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
            "The subscription is not registered to use namespace 'Microsoft.Relay'. See https://aka.ms/rps-not-found for "
            "how to register subscriptions.",
        )
    state["namespaces"].setdefault(name, {"group": group, "location": location, "hcs": {}})


def delete_namespace(state: State, group: str, name: str) -> bool:
    """Delete a namespace, and return whether there was one: deleting what is gone is no error in Azure Resource Manager."""
    scope = f"{group_id(group)}/providers/Microsoft.Relay/namespaces/{name}"
    allow(state, "Microsoft.Relay/namespaces/delete", scope)
    return state["namespaces"].pop(name, None) is not None


def is_available(state: State, name: str) -> bool:
    return name not in state["namespaces"] and name not in state["taken"]


def new_hc(*, authorized: bool = True) -> State:
    return {"authorized": authorized, "listeners": 0, "rules": {}}


def hc_of(state: State, group: str, namespace: str, name: str) -> State:
    hcs = namespace_of(state, group, namespace)["hcs"]
    if name not in hcs:
        raise missing(f"Microsoft.Relay/namespaces/{namespace}/hybridConnections/{name}", group)
    found: State = hcs[name]
    return found


def create_hc(state: State, group: str, namespace: str, name: str, *, authorized: bool) -> None:
    hcs = namespace_of(state, group, namespace)["hcs"]
    allow(state, "Microsoft.Relay/namespaces/hybridConnections/write", f"{namespace_id(state, namespace)}/{name}")
    hcs.setdefault(name, new_hc(authorized=authorized))


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
            "correct principal ID. If you are creating this principal and then immediately assigning a role, this error "
            "might be related to a replication delay. In this case, set the role assignment principalType property to a "
            "value, such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype",
        )
    if any([principal, role, scope] == given[:3] for given in state["roles"]):
        raise Refusal(409, "RoleAssignmentExists", "The role assignment already exists.")
    state["roles"].append([principal, role, scope, kind])
    for name, vault in state["vaults"].items():
        if vault["rbac"] and (principal, role) == (state["user"], MANAGES_SECRETS) and scope == vault_id(state, name):
            vault["forbidden"] = []


def assignment_id(state: State, number: int) -> str:
    principal, role, scope, _ = state["roles"][number]
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{principal} {role} {scope}")
    return f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}"


# --- vaults and secrets ----------------------------------------------------------------------------------------------


def vault_id(state: State, name: str) -> str:
    return f"{group_id(state['vaults'][name]['group'])}/providers/Microsoft.KeyVault/vaults/{name}"


def read_vault(state: State, name: str) -> None:
    allow(state, "Microsoft.KeyVault/vaults/read", vault_id(state, name))


def create_vault(state: State, group: str, name: str, *, rbac: bool, policies: dict[str, list[str]]) -> None:
    """Make a vault. With roles nobody may touch its secrets, its maker included, until `assign` gives a role."""
    check_group(state, group)
    vault = new_vault(group, rbac=rbac)
    granted = ALL if "all" in policies.get(state["user"], []) else policies.get(state["user"], [])
    vault["forbidden"] = list(ALL) if rbac else [verb for verb in ALL if verb not in granted]
    state["vaults"][name] = vault | {"policies": policies}


def set_policies(state: State, name: str, policies: dict[str, list[str]]) -> None:
    """Replace the access policies of a vault: object ids and what each may do with secrets."""
    allow(state, "Microsoft.KeyVault/vaults/write", vault_id(state, name))
    if stranger := next((who for who in policies if who in state["strangers"]), None):
        raise Refusal(
            400,
            "BadRequest",
            f"An invalid value was provided for 'accessPolicies'. The object ID '{stranger}' does not exist in the directory.",
        )
    state["vaults"][name]["policies"] = policies


def check_permission(state: State, name: str, permission: str, secret: str) -> State:
    """Return a vault if the user may do this with its secrets."""
    vault: State = state["vaults"][name]
    if permission not in vault["forbidden"]:
        return vault
    who = f"appid=04b07795-8ddb-461a-bbee-02f9e1bf7b46;oid={state['user']};iss=https://sts.windows.net/{TENANT}/"
    if not vault["rbac"]:
        raise Refusal(
            403,
            "Forbidden",
            f"The user, group or application '{who}' does not have secrets {permission} permission on key vault "
            f"'{name};location=westeurope'. For help resolving this issue, please see "
            "https://go.microsoft.com/fwlink/?linkid=2125287",
            "ForbiddenByPolicy",
        )
    raise Refusal(
        403,
        "Forbidden",
        "Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or role "
        f"definitions were changed recently, please observe propagation time.\r\nCaller: {who}\r\n"
        f"Action: 'Microsoft.KeyVault/vaults/{_ACTIONS[permission]}'\r\nResource: '{vault_id(state, name).lower()}/secrets/"
        f"{secret}'\r\nAssignment: (not found)\r\nDenyAssignmentId: null\r\nDecisionReason: null \r\n"
        f"Vault: {name};location=westeurope\r\n",
        "ForbiddenByRbac",
    )


def get_secret(state: State, vault: str, name: str) -> str:
    secrets = check_permission(state, vault, "get", name)["secrets"]
    if name not in secrets:
        raise _no_secret(name)
    return str(secrets[name][-1])


def _no_secret(name: str) -> Refusal:
    return Refusal(
        404,
        "SecretNotFound",
        f"A secret with (name/id) {name} was not found in this key vault. If you recently deleted this secret you may "
        "be able to recover it using the correct recovery command. For help resolving this issue, please see "
        "https://go.microsoft.com/fwlink/?linkid=2125182",
    )


def set_secret(state: State, vault: str, name: str, value: str) -> None:
    found = check_permission(state, vault, "set", name)
    if name in found["deleted"]:
        raise Refusal(
            409,
            "Conflict",
            f"Secret {name} is currently in a deleted but recoverable state, and its name cannot be reused; in this "
            "state, the secret can only be recovered or purged.",
            "ObjectIsDeletedButRecoverable",
        )
    found["secrets"].setdefault(name, []).append(value)


def delete_secret(state: State, vault: str, name: str) -> None:
    found = check_permission(state, vault, "delete", name)
    if name not in found["secrets"]:
        raise _no_secret(name)
    found["deleted"][name] = found["secrets"].pop(name)


def check_deleted(state: State, vault: str, name: str, permission: str = "get") -> State:
    found = check_permission(state, vault, permission, name)
    if name not in found["deleted"]:
        raise Refusal(404, "SecretNotFound", f"Deleted Secret not found: {name}")
    return found


def recover_secret(state: State, vault: str, name: str) -> None:
    found = check_deleted(state, vault, name, "recover")
    found["secrets"][name] = found["deleted"].pop(name)


# --- deployments -----------------------------------------------------------------------------------------------------

LISTENER, SENDER, SECRETS_USER = (
    "26e0b698-aa6d-4085-9386-aadae190014d",
    "26baccc8-eea7-41f1-98f4-1762cc7f685d",
    "4633458b-17de-408a-b874-0445c86b69e6",
)


def read_parameters(text: str) -> State:
    """Return the values of a parameters file."""
    return {name: entry["value"] for name, entry in json.loads(text)["parameters"].items()}


def deploy(state: State, group: str, given: State) -> None:
    """Do what main.bicep describes, with its parameters."""
    allow(state, "Microsoft.Resources/deployments/write", group_id(group))
    state["deployments"].append(given)
    create_namespace(state, group, given["namespaceName"], given.get("location", "westeurope"))
    for connection in given["hybridConnections"]:
        _deploy_connection(state, given, connection)


def _deploy_connection(state: State, given: State, connection: State) -> None:
    namespace, name = given["namespaceName"], connection["name"]
    rules = state["namespaces"][namespace]["hcs"].setdefault(name, new_hc())["rules"]
    scope = f"{namespace_id(state, namespace)}/hybridConnections/{name}"
    for kind, rule, rights, role in (
        ("agent", "agent-listen", "Listen", LISTENER),
        ("client", "client-send", "Send", SENDER),
    ):
        principals = connection.get(f"{kind}Principals") or []
        _assign_all(state, principals, role, scope)
        if rule not in rules:
            rules[rule] = new_rule(state, [rights])
        if name in given.get("tunnelKeys", {}):
            secret = f"{connection['secretPrefix']}-{kind}"
            base = connection_string(namespace, name, rule, rules[rule]["PrimaryKey"])
            versions = state["vaults"][given["keyVaultName"]]["secrets"].setdefault(secret, [])
            versions.append(f"{base};TunnelKey={given['tunnelKeys'][name]}")
            if given["keyVaultUsesRoles"]:
                _assign_all(state, principals, SECRETS_USER, f"{vault_id(state, given['keyVaultName'])}/secrets/{secret}")


def _assign_all(state: State, principals: list[State], role: str, scope: str) -> None:
    """Give a role as a template does: the name of an assignment is made of its parts, so a second one is the same."""
    for each in principals:
        if [each["id"], role, scope] not in [given[:3] for given in state["roles"]]:
            assign(state, each["id"], role, scope, each["type"])
