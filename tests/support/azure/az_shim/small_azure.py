"""What each command of the stand-in for `az` does to the small Azure of tests/support/azure/cloud/state.py, and prints.

Output, exit codes and texts are those of the real `az` (azure-cli 2.91.0); tests/integration/infra
compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.azure.az_shim import small_key_vault as key_vault
from tests.support.azure.az_shim.failure import Failure, Options
from tests.support.azure.cloud import deployment
from tests.support.azure.cloud import state as model
from tests.support.azure.cloud.state import TENANT, USER_NAME, Refusal, State

SOFT_DELETE = (
    "Warning! If you have soft-delete protection enabled on this key vault, this secret will be moved to the soft "
    "deleted state. You will not be able to create a secret with the same name within this key vault until the secret "
    "has been purged from the soft-deleted state. Please see the following documentation for additional guidance.\n"
    "https://learn.microsoft.com/azure/key-vault/general/soft-delete-overview"
)
WARNINGS = {
    "keyvault secret delete": SOFT_DELETE,
    "login": "To sign in, use a web browser to open the page https://login.microsoft.com/device and enter the code "
    "ABCD1234 to authenticate.",
}
"""What is written to stderr before the answer, unless --only-show-errors is given."""

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
    wanted = options.get("--name", [state["subscription"]])[0]
    found = [name for name, number in state["subscriptions"].items() if wanted in {name, number}]
    if not found:
        raise Failure(f"Subscription '{wanted}' not found. Check the spelling and casing and try again.")
    return _account(state, found[0])


def account_set(state: State, options: Options) -> Any:
    name = options["--name"][0]
    if not is_subscription(state, name):
        raise Failure(f"The subscription of '{name}' doesn't exist in cloud 'AzureCloud'.")
    state["subscription"] = name


def is_subscription(state: State, name: str) -> bool:
    return name in state["subscriptions"] or name in state["subscriptions"].values()


def account_get_access_token(state: State, options: Options) -> Any:
    return state["tokens"][options["--resource"][0]]


def signed_in_user_show(state: State, options: Options) -> Any:
    return {"id": state["user"]}


def provider_register(state: State, options: Options) -> Any:
    model.register_provider(state, options["--namespace"][0])


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
    try:
        model.create_namespace(state, group, name, options["--location"][0])
    except Refusal as refusal:
        if refusal.code != "MissingSubscriptionRegistration" or "Microsoft.Relay/register/action" in state["denied"]:
            raise
        model.register_provider(state, "Microsoft.Relay")  # `az` does it unasked, and tries again
        model.create_namespace(state, group, name, options["--location"][0])
    return {"id": model.namespace_id(state, name)}


def namespace_delete(state: State, options: Options) -> Any:
    model.delete_namespace(state, *_place(options, "--name"))


def hyco_list(state: State, options: Options) -> Any:
    return [{"name": name} for name in model.namespace_of(state, *_place(options, "--namespace-name"))["hcs"]]


def hyco_show(state: State, options: Options) -> Any:
    found = model.hc_of(state, *_place(options, *HC))
    return {
        "requiresClientAuthorization": found["authorized"],
        "listenerCount": found["listeners"],
        "userMetadata": found["metadata"],
    }


def hyco_create(state: State, options: Options) -> Any:
    authorized = options.get("--requires-client-authorization", ["true"])[0]
    if authorized not in {"true", "false"}:
        raise Failure(f"'{authorized}' is not a valid value for '-c'.", 2)
    metadata = options.get("--user-metadata", [None])[0]
    model.create_hc(state, *_place(options, *HC), authorized=authorized == "true", metadata=metadata)


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
    try:
        model.assign(state, *given, kind)
    except Refusal as refusal:
        if refusal.code != "RoleAssignmentExists":
            raise
    path = model.assignment_id(state, [known[:3] for known in state["roles"]].index(given))
    empty = (
        "condition",
        "conditionVersion",
        "createdBy",
        "createdOn",
        "delegatedManagedIdentityResourceId",
        "description",
    )
    facts = {"principalId": who, "principalType": kind, "scope": scope, "updatedBy": None, "updatedOn": None}
    return {
        **dict.fromkeys(empty),
        **facts,
        "id": path,
        "name": path.rpartition("/")[2],
        "resourceGroup": scope.split("/")[4],
        "roleDefinitionId": model.role_id(given[1]),
        "systemData": None,
        "type": "Microsoft.Authorization/roleAssignments",
    }


def deployment_create(state: State, options: Options) -> Any:
    """Do what main.bicep describes, with the parameters of a file."""
    template, file = Path(options["--template-file"][0]), Path(options["--parameters"][0].removeprefix("@"))
    if not template.is_file():
        raise Failure(f"[Errno 2] No such file or directory: '{template}'")
    state["file_modes"].append(file.stat().st_mode & 0o777)
    deployment.deploy(state, options["--resource-group"][0], deployment.read_parameters(file.read_text()))


COMMANDS: dict[str, Callable[[State, Options], Any]] = {
    "account get-access-token": account_get_access_token,
    "account set": account_set,
    "account show": account_show,
    "ad signed-in-user show": signed_in_user_show,
    "deployment group create": deployment_create,
    "group create": group_create,
    "group exists": group_exists,
    "group show": group_show,
    "keyvault create": key_vault.vault_create,
    "keyvault secret delete": key_vault.secret_delete,
    "keyvault secret recover": key_vault.secret_recover,
    "keyvault secret set": key_vault.secret_set,
    "keyvault secret show": key_vault.secret_show,
    "keyvault secret show-deleted": key_vault.secret_show_deleted,
    "keyvault set-policy": key_vault.vault_set_policy,
    "keyvault show": key_vault.vault_show,
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
