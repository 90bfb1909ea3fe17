"""What a deployment of infra/main.bicep makes in the small Azure, with the parameters of its parameters file."""

from __future__ import annotations

import json

from tests.support.azure.cloud.state import (
    LISTENER,
    SECRETS_USER,
    SENDER,
    State,
    allow,
    assign,
    connection_string,
    create_namespace,
    group_id,
    namespace_id,
    new_hc,
    new_rule,
    vault_id,
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
    siblings = [name, *(f"{name}-{number}" for number in range(1, connection.get("size", 1)))]
    for kind, rule, rights, role in (
        ("agent", "agent-listen", "Listen", LISTENER),
        ("client", "client-send", "Send", SENDER),
    ):
        principals = connection.get(f"{kind}Principals") or []
        keys = []
        for sibling in siblings:
            metadata = "" if sibling == name else f"relay-debug family {name.lower()}"
            rules = state["namespaces"][namespace]["hcs"].setdefault(sibling, new_hc(metadata=metadata))["rules"]
            _assign_all(state, principals, role, f"{namespace_id(state, namespace)}/hybridConnections/{sibling}")
            if rule not in rules:
                rules[rule] = new_rule(state, [rights])
            keys.append(rules[rule]["PrimaryKey"])
        if name in given.get("tunnelKeys", {}):
            secret = f"{connection['secretPrefix']}-{kind}"
            base = connection_string(namespace, name, rule, keys[0])
            family = f";FamilyKeys={','.join(keys[1:])}" if keys[1:] else ""
            versions = state["vaults"][given["keyVaultName"]]["secrets"].setdefault(secret, [])
            versions.append(f"{base}{family};TunnelKey={given['tunnelKeys'][name]}")
            if given["keyVaultUsesRoles"]:
                _assign_all(
                    state, principals, SECRETS_USER, f"{vault_id(state, given['keyVaultName'])}/secrets/{secret}"
                )


def _assign_all(state: State, principals: list[State], role: str, scope: str) -> None:
    """Give a role as a template does: the name of an assignment is made of its parts, so a second one is the same."""
    for each in principals:
        if [each["id"], role, scope] not in [given[:3] for given in state["roles"]]:
            assign(state, each["id"], role, scope, each["type"])
