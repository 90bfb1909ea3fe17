"""What each command of the stand-in for `az` does to the small Azure of tests/support/azure/state.py, and prints.

Output, exit codes and texts are those of the real `az` (azure-cli 2.91.0); tests/integration/test_az_stand_in.py compares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.azure import state as model
from tests.support.azure.state import TENANT, USER_NAME, Refusal, State

UPDATED = "2026-11-21T08:00:00+00:00"
VERSION = "0123456789abcdef0123456789abcdef"
SOFT_DELETE = (
    "Warning! If you have soft-delete protection enabled on this key vault, this secret will be moved to the soft deleted "
    "state. You will not be able to create a secret with the same name within this key vault until the secret has been "
    "purged from the soft-deleted state. Please see the following documentation for additional guidance.\n"
    "https://learn.microsoft.com/azure/key-vault/general/soft-delete-overview"
)
WARNINGS = {
    "keyvault secret delete": SOFT_DELETE,
    "login": "To sign in, use a web browser to open the page https://login.microsoft.com/device and enter the code ABCD1234 "
    "to authenticate.",
}
"""What is written to stderr before the answer, unless --only-show-errors is given."""

Options = dict[str, list[str]]


class Failure(Exception):
    """The text and exit code of a command that fails."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def failure(refusal: Refusal, command: str) -> Failure:
    """Return how `az` ends when a service refuses: 404 is exit status 3, but not for all commands of `keyvault`."""
    text = f"({refusal.code}) {refusal.message}\nCode: {refusal.code}\nMessage: {refusal.message}"
    if refusal.inner:
        text += f'\nInner error: {{\n    "code": "{refusal.inner}"\n}}'
    as_failed = command.startswith("keyvault secret ") and command != "keyvault secret show"
    return Failure(text, 3 if refusal.status == 404 and not as_failed else 1)


# --- account, directory, provider, groups, resources -----------------------------------------------------------------


def login(state: State, options: Options) -> Any:
    state["signed_in"] = True
    return [_account(state, name) for name in state["subscriptions"]]


def _account(state: State, name: str) -> Any:
    tenant = {"homeTenantId": TENANT, "tenantDefaultDomain": None, "tenantDisplayName": "Contoso", "tenantId": TENANT}
    return {
        **tenant,
        "cloudName": "AzureCloud",
        "id": state["subscriptions"][name],
        "isDefault": name == state["subscription"],
        "managedByTenants": None,
        "name": name,
        "state": "Enabled",
        "user": {"name": USER_NAME, "type": "user"},
    }


def account_show(state: State, options: Options) -> Any:
    return _account(state, state["subscription"])


def account_set(state: State, options: Options) -> Any:
    name = options["--name"][0]
    check_subscription(state, name)
    state["subscription"] = name


def check_subscription(state: State, name: str) -> None:
    if name not in state["subscriptions"] and name not in state["subscriptions"].values():
        raise Failure(f"The subscription of '{name}' doesn't exist in cloud 'AzureCloud'.")


def account_get_access_token(state: State, options: Options) -> Any:
    return state["tokens"][options["--resource"][0]]


def signed_in_user_show(state: State, options: Options) -> Any:
    return {"id": state["user"]}


def provider_register(state: State, options: Options) -> Any:
    if options["--namespace"] == ["Microsoft.Relay"]:
        state["provider_registered"] = True


def resource_show(state: State, options: Options) -> Any:
    """Know one kind of resource: the clusters of Azure ML, which have a managed identity each."""
    path = "/".join(options[name][0] for name in ("--namespace", "--parent", "--resource-type", "--name"))
    if path not in state["known_resources"]:
        raise model.missing(path, options["--resource-group"][0])
    return state["known_resources"][path]


def group_exists(state: State, options: Options) -> Any:
    return options["--name"][0] in state["groups"]


def group_show(state: State, options: Options) -> Any:
    name = options["--name"][0]
    facts = {"id": model.group_id(name), "location": model.check_group(state, name), "managedBy": None, "name": name}
    kind = "Microsoft.Resources/resourceGroups"
    return {**facts, "properties": {"provisioningState": "Succeeded"}, "tags": None, "type": kind}


def group_create(state: State, options: Options) -> Any:
    name = options["--name"][0]
    model.create_group(state, name, options["--location"][0])
    return group_show(state, options)


# --- Azure Relay -----------------------------------------------------------------------------------------------------


def _place(options: Options, *names: str) -> list[str]:
    """Return the resource group, and what the options name."""
    values = [options[name][0] for name in ("--resource-group", *names)]
    if len(values[1]) < 6:
        raise Failure(f"InvalidArgumentValue: {names[0]}: Invalid format: '{values[1]}' length is less than 6")
    return values


HC = ("--namespace-name", "--name")
RULE = ("--namespace-name", "--hybrid-connection-name", "--name")


def namespace_show(state: State, options: Options) -> Any:
    group, name = _place(options, "--name")
    found = model.namespace_of(state, group, name)
    return {"location": found["location"], "id": model.namespace_id(state, name)}


def namespace_exists(state: State, options: Options) -> Any:
    return {"nameAvailable": model.is_available(state, options["--name"][0])}


def namespace_create(state: State, options: Options) -> Any:
    group, name = _place(options, "--name")
    model.create_namespace(state, group, name, options["--location"][0])
    return {"id": model.namespace_id(state, name)}


def namespace_delete(state: State, options: Options) -> Any:
    model.delete_namespace(state, *_place(options, "--name"))


def hyco_list(state: State, options: Options) -> Any:
    return [{"name": name} for name in model.namespace_of(state, *_place(options, "--namespace-name"))["hcs"]]


def hyco_show(state: State, options: Options) -> Any:
    found = model.hc_of(state, *_place(options, *HC))
    return {"requiresClientAuthorization": found["authorized"], "listenerCount": found["listeners"]}


def hyco_create(state: State, options: Options) -> Any:
    authorized = options.get("--requires-client-authorization", ["true"])[0]
    if authorized not in {"true", "false"}:
        raise Failure(f"'{authorized}' is not a valid value for '-c'.", 2)
    model.create_hc(state, *_place(options, *HC), authorized=authorized == "true")


def hyco_delete(state: State, options: Options) -> Any:
    model.delete_hc(state, *_place(options, *HC))


def rule_show(state: State, options: Options) -> Any:
    return {"rights": model.rule_of(state, *_place(options, *RULE))["rights"]}


def rule_create(state: State, options: Options) -> Any:
    rights = options["--rights"]
    if unknown := set(rights) - {"Listen", "Manage", "Send"}:
        raise Failure(f"unrecognized value '{unknown.pop()}' from choices '['Listen', 'Manage', 'Send']'")
    model.create_rule(state, *_place(options, *RULE), rights)


def keys_list(state: State, options: Options) -> Any:
    return model.keys_of(state, *_place(options, *RULE))


def keys_renew(state: State, options: Options) -> Any:
    key = options["--key"][0]
    if key not in {"PrimaryKey", "SecondaryKey"}:
        raise Failure(f"unrecognized value '{key}' from choices '['PrimaryKey', 'SecondaryKey']'")
    model.renew_key(state, *_place(options, *RULE), key)
    return keys_list(state, options)


# --- Key Vault -------------------------------------------------------------------------------------------------------


def _vault_of(state: State, options: Options) -> str:
    name = options["--name"][0]
    if name not in state["vaults"]:
        raise Failure(f"The Vault '{name}' not found within subscription.")
    return name


def vault_show(state: State, options: Options) -> Any:
    return vault_facts(state, _vault_of(state, options))


def vault_facts(state: State, name: str) -> Any:
    model.read_vault(state, name)
    vault = state["vaults"][name]
    permissions = {"certificates": None, "keys": None, "storage": None}
    policies = [
        {"applicationId": None, "objectId": who, "permissions": {**permissions, "secrets": verbs}, "tenantId": TENANT}
        for who, verbs in vault["policies"].items()
    ]
    empty = (
        *("createMode", "enablePurgeProtection", "enabledForDeployment", "enabledForDiskEncryption", "hsmPoolResourceId"),
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
    facts = {"location": "westeurope", "name": name, "systemData": None, "tags": {}, "type": "Microsoft.KeyVault/vaults"}
    return {"id": model.vault_id(state, name), **facts, "resourceGroup": vault["group"], "properties": properties}


def vault_create(state: State, options: Options) -> Any:
    name, group = options["--name"][0], options["--resource-group"][0]
    if name in state["vaults"]:
        raise Failure(f"The specified vault: {name} already exists")
    rbac = options.get("--enable-rbac-authorization", ["true"]) == ["true"]
    policies = {} if rbac else {state["user"]: ["all"]}
    model.create_vault(state, group, name, rbac=rbac, policies=policies)
    return vault_show(state, options)


def vault_set_policy(state: State, options: Options) -> Any:
    name = _vault_of(state, options)
    vault = state["vaults"][name]
    if vault["rbac"]:
        raise Failure(
            "Cannot set policies to a vault with '--enable-rbac-authorization' specified",
        )
    given = {options["--object-id"][0]: options["--secret-permissions"]}
    model.set_policies(state, name, {**vault["policies"], **given})
    return vault_show(state, options)


def _secret_of(state: State, options: Options) -> tuple[State, str, str]:
    vault = options["--vault-name"][0]
    if vault not in state["vaults"]:
        raise Failure(f"<urllib3.connection.HTTPSConnection>: Failed to resolve '{vault}.vault.azure.net'")
    return state, vault, options["--name"][0]


def secret_show(state: State, options: Options) -> Any:
    return {"value": model.get_secret(*_secret_of(state, options)), "attributes": {"updated": UPDATED}}


def secret_set(state: State, options: Options) -> Any:
    if ("--value" in options) == ("--file" in options):
        raise Failure("incorrect usage: [Required] --value VALUE | --file PATH")
    if "--file" in options:
        path = Path(options["--file"][0])
        state["file_modes"].append(path.stat().st_mode & 0o777 | path.parent.stat().st_mode & 0o077)
        value = path.read_text()
    else:
        value = options["--value"][0]
    model.set_secret(*_secret_of(state, options), value)
    return {"value": value}


def secret_delete(state: State, options: Options) -> Any:
    model.delete_secret(*_secret_of(state, options))


def secret_show_deleted(state: State, options: Options) -> Any:
    model.check_deleted(*_secret_of(state, options))
    return {"value": None}


def secret_recover(state: State, options: Options) -> Any:
    model.recover_secret(*_secret_of(state, options))


# --- roles and deployments -------------------------------------------------------------------------------------------


def _role(name: str) -> str:
    """Return the id of a role that is given by its id or its name."""
    if name in model.ROLE_NAMES:
        return name
    found = [role for role, known in model.ROLE_NAMES.items() if known == name]
    if not found:
        raise Failure(f"Role '{name}' doesn't exist.")
    return found[0]


def role_list(state: State, options: Options) -> Any:
    who, scope = options["--assignee-object-id"][0], options["--scope"][0]
    wanted = [who, _role(options["--role"][0]), scope]
    model.read_roles(state, scope)
    return [
        {"id": model.assignment_id(state, number)} for number, given in enumerate(state["roles"]) if given[:3] == wanted
    ]


def role_create(state: State, options: Options) -> Any:
    who, role, scope = (options[name][0] for name in ("--assignee-object-id", "--role", "--scope"))
    kind = options["--assignee-principal-type"][0]
    given = [who, _role(role), scope]
    if given not in [known[:3] for known in state["roles"]]:
        model.assign(state, *given, kind)
    path = model.assignment_id(state, [known[:3] for known in state["roles"]].index(given))
    empty = ("condition", "conditionVersion", "createdBy", "createdOn", "delegatedManagedIdentityResourceId", "description")
    facts = {"principalId": who, "principalType": kind, "scope": scope, "updatedBy": None, "updatedOn": None}
    return {
        **dict.fromkeys(empty),
        **facts,
        "id": path,
        "name": path.rpartition("/")[2],
        "resourceGroup": scope.split("/")[4],
        "roleDefinitionId": model.role_id(given[1]),
        "type": "Microsoft.Authorization/roleAssignments",
    }


def deployment_create(state: State, options: Options) -> Any:
    """Do what main.bicep says, with the parameters of a file."""
    template, file = Path(options["--template-file"][0]), Path(options["--parameters"][0].removeprefix("@"))
    if not template.is_file():
        raise Failure(f"[Errno 2] No such file or directory: '{template}'")
    state["file_modes"].append(file.stat().st_mode & 0o777)
    model.deploy(state, options["--resource-group"][0], model.read_parameters(file.read_text()))


COMMANDS: dict[str, Callable[[State, Options], Any]] = {
    "account get-access-token": account_get_access_token,
    "account set": account_set,
    "account show": account_show,
    "ad signed-in-user show": signed_in_user_show,
    "deployment group create": deployment_create,
    "group create": group_create,
    "group exists": group_exists,
    "group show": group_show,
    "keyvault create": vault_create,
    "keyvault secret delete": secret_delete,
    "keyvault secret recover": secret_recover,
    "keyvault secret set": secret_set,
    "keyvault secret show": secret_show,
    "keyvault secret show-deleted": secret_show_deleted,
    "keyvault set-policy": vault_set_policy,
    "keyvault show": vault_show,
    "login": login,
    "provider register": provider_register,
    "relay hyco authorization-rule create": rule_create,
    "relay hyco authorization-rule keys list": keys_list,
    "relay hyco authorization-rule keys renew": keys_renew,
    "relay hyco authorization-rule show": rule_show,
    "relay hyco create": hyco_create,
    "relay hyco delete": hyco_delete,
    "relay hyco list": hyco_list,
    "relay hyco show": hyco_show,
    "relay namespace create": namespace_create,
    "relay namespace delete": namespace_delete,
    "relay namespace exists": namespace_exists,
    "relay namespace show": namespace_show,
    "resource show": resource_show,
    "role assignment create": role_create,
    "role assignment list": role_list,
}
