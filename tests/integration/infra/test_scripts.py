"""The scripts of infra/ through the real `az`: what they make, renew and delete, and what a second run leaves alone."""

from __future__ import annotations

import pytest

from relay_core.hyco.connection_string import ConnectionString
from tests.support.azure.az_shim.kit import AGENT, CLIENT, PRINCIPAL, TUNNEL_KEY, USER, FakeAzure, field
from tests.support.azure.cloud import bicep
from tests.support.azure.cloud import state as model
from tests.support.azure.cloud.cli import needs_az
from tests.support.azure.cloud.kit import AzureOverHttp

pytestmark = needs_az

READS = {"show", "list", "exists", "show-deleted"}
"""Last words of commands that change nothing; a namespace's keys are read with `keys list`."""

Names = tuple[str, ...]


def test_first_and_second_run(azure: AzureOverHttp, names: Names) -> None:
    """A first run makes everything, roles included, and a second one only reads."""
    options = (*names, "--agent-principal", PRINCIPAL, "--client-principal", f"{USER}:User")
    first = azure.run("create_relay.sh", *options)
    assert (0, "") == (first.code, first.err)
    agent, client = (ConnectionString.parse(azure.secret(name)) for name in (AGENT, CLIENT))
    assert azure.hc()["rules"]["agent-listen"]["PrimaryKey"] == agent.key
    assert azure.hc()["rules"]["client-send"]["PrimaryKey"] == client.key
    assert agent.tunnel_key == client.tunnel_key is not None
    roles = [(who, model.ROLE_NAMES[role], scope.rpartition("/")[2]) for who, role, scope, _ in azure.load()["roles"]]
    assert [
        (PRINCIPAL, "Azure Relay Listener", "alice"),
        (PRINCIPAL, "Key Vault Secrets User", AGENT),
        (USER, "Azure Relay Sender", "alice"),
        (USER, "Key Vault Secrets User", CLIENT),
    ] == roles
    before = azure.resources()
    azure.forget_calls()
    second = azure.run("create_relay.sh", *options)
    assert (0, "") == (second.code, second.err)
    assert second.out.startswith("nothing to change:")
    assert before == azure.resources()
    assert {command.split()[-1] for command in azure.commands()} <= READS


def test_same_as_with_the_stand_in(
    azure: AzureOverHttp, names: Names, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Through the stand-in the scripts print the same and call `az` in the same way as through the real one."""
    with FakeAzure(tmp_path_factory.mktemp("stand-in")) as stand_in:
        runs = [
            (each.run("create_relay.sh", *names), each.run("delete_relay.sh", *names, "--namespace-too", "--yes"))
            for each in (azure, stand_in)
        ]
        assert runs[0] == runs[1]
        assert stand_in.commands() == azure.commands()


def test_dry_run(azure: AzureOverHttp, names: Names) -> None:
    """--dry-run in an empty subscription ends well, and changes nothing."""
    before = azure.load()
    done = azure.run("create_relay.sh", *names, "--dry-run", "--agent-principal", PRINCIPAL)
    assert (0, "") == (done.code, done.err)
    assert done.out.endswith("dry run: nothing was created\n")
    assert before == azure.load()


def test_entra(azure: AzureOverHttp, names: Names) -> None:
    """--entra stores the tunnel key alone, and again changes nothing."""
    options = (*names, "--entra", "--client-principal", USER)
    assert 0 == azure.run("create_relay.sh", *options).code
    assert [TUNNEL_KEY] == list(azure.vault["secrets"])
    assert {} == azure.hc()["rules"]
    before = azure.resources()
    assert azure.run("create_relay.sh", *options).out.startswith("nothing to change:")
    assert before == azure.resources()


def test_bicep(azure: AzureOverHttp, names: Names) -> None:
    """--bicep makes one deployment with what is missing, the tunnel key as a parameter, and a second run makes none.

    The compiler is a stand-in, and the small Azure knows what the template describes; `az` and its requests are real.
    """
    bicep.install(azure.bin)
    options = (*names, "--bicep", "--agent-principal", PRINCIPAL)
    done = azure.run("create_relay.sh", *options, **bicep.ENVIRONMENT)
    assert (0, "") == (done.code, done.err)
    assert ConnectionString.parse(azure.secret(AGENT)).tunnel_key
    before = azure.load()
    assert [{"alice"}] == [set(given["tunnelKeys"]) for given in before["deployments"]]
    assert azure.run("create_relay.sh", *options, **bicep.ENVIRONMENT).out.startswith("nothing to change:")
    assert before == azure.load()


def test_bicep_gives_a_role_on_a_secret_that_is_there(deployed: AzureOverHttp, names: Names) -> None:
    """The template gives a role on a secret only together with the secret, so the script gives it otherwise."""
    bicep.install(deployed.bin)
    options = (*names, "--bicep", "--agent-principal", PRINCIPAL)
    assert 0 == deployed.run("create_relay.sh", *options, **bicep.ENVIRONMENT).code
    assert [model.SECRETS_USER, model.LISTENER] == [role for _, role, _, _ in deployed.load()["roles"]]
    assert 1 == len(deployed.vault["secrets"][AGENT])
    assert deployed.run("create_relay.sh", *options, **bicep.ENVIRONMENT).out.startswith("nothing to change:")


def test_bicep_without_compiler(azure: AzureOverHttp, names: Names) -> None:
    """Where `az` cannot download the compiler, the script names what is missing and how to do without."""
    done = azure.run("create_relay.sh", *names, "--bicep")
    assert 3 == done.code
    assert "az has no Bicep compiler" in done.err
    assert "or omit --bicep" in done.err


def test_rotation(deployed: AzureOverHttp, names: Names) -> None:
    """Both phases move the secrets to a renewed key, the tunnel key stays, and the last phase again changes nothing."""
    tunnel_key = field(deployed.secret(AGENT), "TunnelKey")
    for phase, key in (("secondary", "SecondaryKey"), ("primary", "PrimaryKey")):
        old = {name: dict(rule) for name, rule in deployed.hc()["rules"].items()}
        done = deployed.run("rotate_keys.sh", *names, "--phase", phase)
        assert (0, "") == (done.code, done.err)
        for rule, secret in (("agent-listen", AGENT), ("client-send", CLIENT)):
            renewed = deployed.hc()["rules"][rule][key]
            assert old[rule][key] != renewed == field(deployed.secret(secret), "SharedAccessKey")
    before = deployed.resources()
    assert "nothing to change" in deployed.run("rotate_keys.sh", *names, "--phase", "primary").out
    assert before == deployed.resources()
    assert tunnel_key == field(deployed.secret(AGENT), "TunnelKey")


def test_new_tunnel_key(deployed: AzureOverHttp, names: Names) -> None:
    """Phase tunnel-key puts one new tunnel key into both strings, and renews no key of Azure Relay."""
    rules, old = deployed.hc()["rules"], field(deployed.secret(AGENT), "TunnelKey")
    assert 0 == deployed.run("rotate_keys.sh", *names, "--phase", "tunnel-key").code
    assert old != field(deployed.secret(AGENT), "TunnelKey") == field(deployed.secret(CLIENT), "TunnelKey")
    assert rules == deployed.hc()["rules"]


def test_delete_and_delete_again(deployed: AzureOverHttp, names: Names) -> None:
    """All of it goes, the secrets to where they can be recovered from, and a second run finds nothing."""
    options = (*names, "--namespace-too", "--yes")
    done = deployed.run("delete_relay.sh", *options)
    assert (0, "") == (done.code, done.err)
    assert {} == deployed.load()["namespaces"]
    assert {AGENT, CLIENT} == set(deployed.vault["deleted"])
    again = deployed.run("delete_relay.sh", *options)
    assert (0, "nothing to delete: none of these resources exist\n") == (again.code, again.out)


def test_deleted_secrets_come_back(deployed: AzureOverHttp, names: Names) -> None:
    """After a deletion, create_relay.sh recovers the secrets whose names are blocked, and gives them new keys."""
    old = field(deployed.secret(AGENT), "TunnelKey")
    assert 0 == deployed.run("delete_relay.sh", *names, "--yes").code
    done = deployed.run("create_relay.sh", *names)
    assert (0, "") == (done.code, done.err)
    assert f"recover deleted secret '{AGENT}'" in done.out
    assert old != field(deployed.secret(AGENT), "TunnelKey") == field(deployed.secret(CLIENT), "TunnelKey")


def test_somebody_else_deletes_the_secret(deployed: AzureOverHttp, names: Names) -> None:
    """A secret that vanishes between looking and deleting is ignored, though `az` exits 1 for it."""
    gone = model.Refusal(404, "SecretNotFound", "A secret with (name/id) x was not found in this key vault.")
    deployed.refuse("DELETE", f"/secrets/{AGENT}", gone)
    done = deployed.run("delete_relay.sh", *names, "--yes")
    assert (0, "") == (done.code, done.err)


def test_unregistered_provider(azure: AzureOverHttp, names: Names) -> None:
    """`az` registers the subscription for Microsoft.Relay unasked, so a first run needs nothing before it."""
    azure.change(provider_registered=False)
    assert 0 == azure.run("create_relay.sh", *names, "--entra").code
    assert azure.load()["provider_registered"]


def test_access_policies(azure: AzureOverHttp, names: Names) -> None:
    """In a vault with access policies the script names the command to type, and gives Azure Relay's roles alone."""
    azure.change_vault(rbac=False, policies={USER: ["get", "list", "set", "delete", "recover"], PRINCIPAL: ["List"]})
    before = azure.resources()
    options = (*names, "--agent-principal", PRINCIPAL, "--client-principal", USER)
    refused = azure.run("create_relay.sh", *options)
    assert 3 == refused.code
    command = f"az keyvault set-policy -n contoso-kv --object-id {PRINCIPAL} --secret-permissions list get"
    assert f"run: {command}; then run this again" in refused.err
    assert before == azure.resources()
    assert 0 == azure.call_az(command).code
    done = azure.run("create_relay.sh", *options)
    assert (0, "") == (done.code, done.err)
    assert {model.LISTENER, model.SENDER} == {role for _, role, _, _ in azure.load()["roles"]}
    assert "an access policy in 'contoso-kv' with the secret permission 'get'" in done.out
    assert {"get", "list"} == set(azure.vault["policies"][PRINCIPAL])
