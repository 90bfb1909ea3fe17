"""The small Azure behind the stand-in for `az`: what each command does to the state, and what it answers.

A state is a dictionary, kept in a JSON file between calls; kit.py begins one. Texts and exit codes of what fails are
those of the real `az` (azure-cli 2.91.0).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
UPDATED = "2026-11-21T08:00:00+00:00"
MANAGES_SECRETS = "Key Vault Secrets Officer"

Options = dict[str, list[str]]
State = dict[str, Any]


class Failure(Exception):
    """The text and exit code of a command that fails."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def fail(code: str, message: str, exit_code: int = 1) -> NoReturn:
    """Fail in the format of an answer of Azure."""
    raise Failure(f"({code}) {message}\nCode: {code}\nMessage: {message}", exit_code)


def missing(what: str) -> NoReturn:
    """Fail as Azure's 404 does."""
    fail("ResourceNotFound", f"The Resource '{what}' was not found.", 3)


def sas_key(number: int) -> str:
    """Return the key that is issued as the `number`-th."""
    return base64.b64encode(f"SAS-key-number-{number:04d}-of-the-test!".encode()).decode()


def new_key(state: State) -> str:
    state["keys"] += 1
    return sas_key(state["keys"])


def new_rule(state: State, rights: list[str]) -> State:
    return {"rights": rights, "PrimaryKey": new_key(state), "SecondaryKey": new_key(state)}


def namespace_of(state: State, options: Options, option: str = "--namespace-name") -> State:
    name, group = options[option][0], options["--resource-group"][0]
    if not 6 <= len(name) <= 50:
        raise Failure(f"InvalidArgumentValue: {option}: Invalid format: '{name}' length is less than 6")
    if group not in state["groups"]:
        fail("ResourceGroupNotFound", f"Resource group '{group}' could not be found.", 3)
    found = state["namespaces"].get(name)
    if found is None or found["group"] != group:
        missing(f"Microsoft.Relay/namespaces/{name}")
    return found  # type: ignore[no-any-return]


def hc_of(state: State, options: Options, option: str = "--hybrid-connection-name") -> State:
    hcs = namespace_of(state, options)["hcs"]
    if options[option][0] not in hcs:
        missing(f"hybridConnections/{options[option][0]}")
    return hcs[options[option][0]]  # type: ignore[no-any-return]


def rule_of(state: State, options: Options) -> State:
    rules = hc_of(state, options)["rules"]
    if options["--name"][0] not in rules:
        missing(f"authorizationRules/{options['--name'][0]}")
    return rules[options["--name"][0]]  # type: ignore[no-any-return]


def namespace_id(state: State, name: str) -> str:
    group = state["namespaces"][name]["group"]
    return f"{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Relay/namespaces/{name}"


def connection_string(namespace: str, hc: str, rule: str, key: str) -> str:
    return (
        f"Endpoint=sb://{namespace}.servicebus.windows.net/;SharedAccessKeyName={rule};"
        f"SharedAccessKey={key};EntityPath={hc}"
    )


def login(state: State, options: Options) -> Any:
    state["signed_in"] = True
    return [{"name": name, "isDefault": name == state["subscription"]} for name in state["subscriptions"]]


def account_show(state: State, options: Options) -> Any:
    return {"name": state["subscription"]}


def account_set(state: State, options: Options) -> Any:
    name = options["--name"][0]
    if name not in state["subscriptions"]:
        raise Failure(f"The subscription of '{name}' doesn't exist in cloud 'AzureCloud'.")
    state["subscription"] = name


def account_get_access_token(state: State, options: Options) -> Any:
    return state["tokens"][options["--resource"][0]]


def signed_in_user_show(state: State, options: Options) -> Any:
    return {"id": state["user"]}


def provider_register(state: State, options: Options) -> Any:
    if options["--namespace"] == ["Microsoft.Relay"]:
        state["provider_registered"] = True


def resource_show(state: State, options: Options) -> Any:
    """Know one kind of resource: the clusters of Azure ML, which have a managed identity each."""
    path = [options[name][0] for name in ("--namespace", "--parent", "--resource-type", "--name")]
    if "/".join(path) not in state["known_resources"]:
        missing("/".join(path))
    return state["known_resources"]["/".join(path)]


def group_exists(state: State, options: Options) -> Any:
    return options["--name"][0] in state["groups"]


def group_show(state: State, options: Options) -> Any:
    return {"location": state["groups"][options["--name"][0]]}


def group_create(state: State, options: Options) -> Any:
    state["groups"][options["--name"][0]] = options["--location"][0]


def namespace_show(state: State, options: Options) -> Any:
    found = namespace_of(state, options, "--name")
    return {"location": found["location"], "id": namespace_id(state, options["--name"][0])}


def namespace_exists(state: State, options: Options) -> Any:
    name = options["--name"][0]
    return {"nameAvailable": name not in state["namespaces"] and name not in state["taken"]}


def namespace_create(state: State, options: Options) -> Any:
    if not state["provider_registered"]:
        fail(
            "MissingSubscriptionRegistration",
            "The subscription is not registered to use namespace 'Microsoft.Relay'.",
        )
    name = options["--name"][0]
    create_namespace(state, name, options["--resource-group"][0], options["--location"][0])
    return {"id": namespace_id(state, name)}


def create_namespace(state: State, name: str, group: str, location: str) -> None:
    state["namespaces"].setdefault(name, {"group": group, "location": location, "hcs": {}})


def namespace_delete(state: State, options: Options) -> Any:
    namespace_of(state, options, "--name")
    del state["namespaces"][options["--name"][0]]


def hyco_list(state: State, options: Options) -> Any:
    return [{"name": name} for name in namespace_of(state, options)["hcs"]]


def hyco_show(state: State, options: Options) -> Any:
    found = hc_of(state, options, "--name")
    return {"requiresClientAuthorization": found["authorized"], "listenerCount": found["listeners"]}


def hyco_create(state: State, options: Options) -> Any:
    authorized = options.get("--requires-client-authorization", ["true"])[0]
    if authorized not in {"true", "false"}:
        raise Failure(f"'{authorized}' is not a valid value for '-c'.", 2)
    hcs = namespace_of(state, options)["hcs"]
    hcs[options["--name"][0]] = {"authorized": authorized == "true", "listeners": 0, "rules": {}}


def hyco_delete(state: State, options: Options) -> Any:
    hc_of(state, options, "--name")
    del namespace_of(state, options)["hcs"][options["--name"][0]]


def rule_show(state: State, options: Options) -> Any:
    return {"rights": rule_of(state, options)["rights"]}


def rule_create(state: State, options: Options) -> Any:
    rights = options["--rights"]
    if unknown := set(rights) - {"Listen", "Manage", "Send"}:
        raise Failure(f"unrecognized value '{unknown.pop()}' from choices '['Listen', 'Manage', 'Send']'")
    hc_of(state, options)["rules"][options["--name"][0]] = new_rule(state, rights)


def keys_list(state: State, options: Options) -> Any:
    rule = rule_of(state, options)
    namespace, hc, name = (options[o][0] for o in ("--namespace-name", "--hybrid-connection-name", "--name"))
    return {
        f"{which}ConnectionString": connection_string(namespace, hc, name, rule[key])
        for which, key in (("primary", "PrimaryKey"), ("secondary", "SecondaryKey"))
    }


def keys_renew(state: State, options: Options) -> Any:
    key = options["--key"][0]
    if key not in {"PrimaryKey", "SecondaryKey"}:
        raise Failure(f"unrecognized value '{key}' from choices '['PrimaryKey', 'SecondaryKey']'")
    rule_of(state, options)[key] = new_key(state)
    return keys_list(state, options)


def vault_of(state: State, options: Options, option: str = "--vault-name") -> State:
    name = options[option][0]
    if name not in state["vaults"]:
        if option == "--name":
            missing(f"Microsoft.KeyVault/vaults/{name}")
        raise Failure(f"<urllib3.connection.HTTPSConnection>: Failed to resolve '{name}.vault.azure.net'")
    return state["vaults"][name]  # type: ignore[no-any-return]


def secrets_of(state: State, options: Options, permission: str) -> State:
    vault = vault_of(state, options)
    if permission in vault["forbidden"]:
        inner = '{"code": "ForbiddenByRbac"}'
        fail("Forbidden", f"Caller is not authorized to perform action on resource.\nInner error: {inner}")
    return vault["secrets"]  # type: ignore[no-any-return]


def vault_create(state: State, options: Options) -> Any:
    """Nobody may read or write a new vault's secrets, its maker included, until `role_create` gives the role."""
    name, group = options["--name"][0], options["--resource-group"][0]
    if options.get("--enable-rbac-authorization") != ["true"]:
        raise Failure("this stand-in makes vaults with roles only")
    if name in state["vaults"]:
        raise Failure(f"The specified vault: {name} already exists")
    if group not in state["groups"]:
        fail("ResourceGroupNotFound", f"Resource group '{group}' could not be found.", 3)
    state["vaults"][name] = {"group": group, "secrets": {}, "deleted": {}, "forbidden": ["get", "set", "delete"]}
    return vault_show(state, options)


def vault_show(state: State, options: Options) -> Any:
    name = options["--name"][0]
    group = vault_of(state, options, "--name")["group"]
    return {
        "id": f"{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.KeyVault/vaults/{name}",
        "resourceGroup": group,
        "properties": {"vaultUri": f"https://{name}.vault.azure.net/"},
    }


def secret_show(state: State, options: Options) -> Any:
    name, secrets = options["--name"][0], secrets_of(state, options, "get")
    if name not in secrets:
        fail("SecretNotFound", f"A secret with (name/id) {name} was not found in this key vault.", 3)
    return {"value": secrets[name][-1], "attributes": {"updated": UPDATED}}


def secret_set(state: State, options: Options) -> Any:
    if ("--value" in options) == ("--file" in options):
        raise Failure("incorrect usage: [Required] --value VALUE | --file PATH")
    name, secrets = options["--name"][0], secrets_of(state, options, "set")
    if name in vault_of(state, options)["deleted"]:
        inner = '{"code": "ObjectIsDeletedButRecoverable"}'
        fail("Conflict", f"Secret {name} is currently in a deleted but recoverable state.\nInner error: {inner}")
    if "--file" in options:
        path = Path(options["--file"][0])
        state["file_modes"].append(path.stat().st_mode & 0o777 | path.parent.stat().st_mode & 0o077)
        value = path.read_text()
    else:
        value = options["--value"][0]
    secrets.setdefault(name, []).append(value)
    return {"value": value}


def secret_delete(state: State, options: Options) -> Any:
    name, secrets = options["--name"][0], secrets_of(state, options, "delete")
    if name not in secrets:
        fail("SecretNotFound", f"A secret with (name/id) {name} was not found in this key vault.", 3)
    vault_of(state, options)["deleted"][name] = secrets.pop(name)


def secret_show_deleted(state: State, options: Options) -> Any:
    secrets_of(state, options, "get")
    if options["--name"][0] not in vault_of(state, options)["deleted"]:
        fail("SecretNotFound", f"Deleted Secret not found: {options['--name'][0]}", 3)
    return {"value": None}


def secret_recover(state: State, options: Options) -> Any:
    name, secrets = options["--name"][0], secrets_of(state, options, "set")
    secrets[name] = vault_of(state, options)["deleted"].pop(name)


def role_list(state: State, options: Options) -> Any:
    wanted = [options[name][0] for name in ("--assignee-object-id", "--role", "--scope")]
    return [{"id": str(n)} for n, role in enumerate(state["roles"]) if role[:3] == wanted]


def role_create(state: State, options: Options) -> Any:
    names = ("--assignee-object-id", "--role", "--scope", "--assignee-principal-type")
    assignment = [options[name][0] for name in names]
    if assignment not in state["roles"]:
        state["roles"].append(assignment)
    for name, vault in state["vaults"].items():
        who, role, scope, _ = assignment
        if (who, role) == (state["user"], MANAGES_SECRETS) and scope.endswith(f"/vaults/{name}"):
            vault["forbidden"] = []


def deployment_create(state: State, options: Options) -> Any:
    """Do what main.bicep says, with the parameters of a file."""
    template, file = Path(options["--template-file"][0]), Path(options["--parameters"][0].removeprefix("@"))
    if not template.is_file():
        raise Failure(f"[Errno 2] No such file or directory: '{template}'")
    state["file_modes"].append(file.stat().st_mode & 0o777)
    given = {name: entry["value"] for name, entry in json.loads(file.read_text())["parameters"].items()}
    state["deployments"].append(given)
    namespace, group = given["namespaceName"], options["--resource-group"][0]
    create_namespace(state, namespace, group, given["location"])
    for connection in given["hybridConnections"]:
        deploy_connection(state, given, connection)


def deploy_connection(state: State, given: State, connection: State) -> None:
    namespace, name = given["namespaceName"], connection["name"]
    new_hc = {"authorized": True, "listeners": 0, "rules": {}}
    rules = state["namespaces"][namespace]["hcs"].setdefault(name, new_hc)["rules"]
    for kind, rule, rights in (("agent", "agent-listen", "Listen"), ("client", "client-send", "Send")):
        if rule not in rules:
            rules[rule] = new_rule(state, [rights])
        if name in given["tunnelKeys"]:
            base = connection_string(namespace, name, rule, rules[rule]["PrimaryKey"])
            value = f"{base};TunnelKey={given['tunnelKeys'][name]}"
            secrets = state["vaults"][given["keyVaultName"]]["secrets"]
            secrets.setdefault(f"{connection['secretPrefix']}-{kind}", []).append(value)


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
