"""The Key Vaults of the small Azure: who may do what with their secrets, and what becomes of a secret."""

from __future__ import annotations

from tests.support.azure.cloud.state import TENANT, Refusal, State, allow, check_group, new_vault, vault_id

ALL = ("get", "set", "delete", "recover")
"""The permissions on secrets that the commands here need."""
_ACTIONS = {
    "get": "secrets/getSecret/action",
    "set": "secrets/setSecret/action",
    "delete": "secrets/delete",
    "recover": "secrets/recover/action",
}


def read_vault(state: State, name: str) -> None:
    allow(state, "Microsoft.KeyVault/vaults/read", vault_id(state, name))


def create_vault(state: State, group: str, name: str, *, rbac: bool, policies: dict[str, list[str]]) -> None:
    """Make a vault. With roles nobody may touch its secrets, its maker included, until `assign` gives a role."""
    check_group(state, group)
    if name in state["vaults"]:
        raise Refusal(
            409,
            "VaultAlreadyExists",
            f"The vault name '{name}' is already in use. Vault names are globally unique so it is possible that the "
            "name is already taken.",
        )
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
            f"An invalid value was provided for 'accessPolicies'. The object ID '{stranger}' does not exist in the "
            "directory.",
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
        f"Action: 'Microsoft.KeyVault/vaults/{_ACTIONS[permission]}'\r\n"
        f"Resource: '{vault_id(state, name).lower()}/secrets/{secret}'\r\n"
        "Assignment: (not found)\r\nDenyAssignmentId: null\r\nDecisionReason: null \r\n"
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
