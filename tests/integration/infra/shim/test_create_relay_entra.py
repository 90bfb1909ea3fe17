"""create_relay.sh --entra against the small Azure: no keys but the tunnel key, which both kinds of access share."""

import pytest

from relay_core.hyco.connection_string import parse_tunnel_key
from tests.support.azure.az_shim.kit import AGENT, CLIENT, PRINCIPAL, TUNNEL_KEY, field


def test_entra_stores_the_tunnel_key_alone(azure, names):
    """--entra makes no rule and no connection string: the only secret is a good tunnel key."""
    result = azure.run("create_relay.sh", *names, "--entra")
    assert (0, "") == (result.code, result.err)
    assert {} == azure.hc()["rules"]
    assert azure.hc()["authorized"]
    assert [TUNNEL_KEY] == list(azure.vault["secrets"])
    assert parse_tunnel_key(azure.secret(TUNNEL_KEY), TUNNEL_KEY)


def test_entra_again_changes_nothing(azure, names):
    """A second run with --entra, and one without it in between, write nothing twice."""
    options = (*names, "--client-principal", PRINCIPAL)
    azure.run("create_relay.sh", *options, "--entra")
    azure.run("create_relay.sh", *options)
    before = azure.load()
    for how in ((), ("--entra",)):
        assert azure.run("create_relay.sh", *options, *how).out.startswith("nothing to change:")
    assert before == azure.load()


@pytest.mark.parametrize("runs", [[(), ("--entra",)], [("--entra",), ()], [("--entra",), ("--bicep",)]])
def test_both_kinds_of_secrets_match(azure, names, runs):
    """Whichever is stored first, the strings and the secret of its own have the same tunnel key."""
    for how in runs:
        assert 0 == azure.run("create_relay.sh", *names, *how).code
    assert {AGENT, CLIENT, TUNNEL_KEY} == set(azure.vault["secrets"])
    assert {azure.secret(TUNNEL_KEY)} == {field(azure.secret(name), "TunnelKey") for name in (AGENT, CLIENT)}


@pytest.mark.parametrize("how", [(), ("--bicep",)])
def test_new_tunnel_key_reaches_all_secrets(deployed, names, how):
    """A new hybrid connection of an old name gets its new tunnel key into the secret of its own as well."""
    deployed.run("create_relay.sh", *names, "--entra")
    old = deployed.secret(TUNNEL_KEY)
    deployed.run("delete_relay.sh", *names[:6], "--yes")
    assert 0 == deployed.run("create_relay.sh", *names, *how).code
    assert old != deployed.secret(TUNNEL_KEY)
    assert deployed.secret(TUNNEL_KEY) == field(deployed.secret(AGENT), "TunnelKey")


def test_entra_roles(azure, names):
    """With --entra job and developer get their Relay role, and may read the tunnel key and nothing else."""
    other = PRINCIPAL.replace("1", "2")
    options = ("--entra", "--agent-principal", PRINCIPAL, "--client-principal", other)
    assert 0 == azure.run("create_relay.sh", *names, *options).code
    roles = [(who, role, scope.split("/")[-1], kind) for who, role, scope, kind in azure.load()["roles"]]
    assert [
        (PRINCIPAL, "26e0b698-aa6d-4085-9386-aadae190014d", "alice", "ServicePrincipal"),
        (PRINCIPAL, "4633458b-17de-408a-b874-0445c86b69e6", TUNNEL_KEY, "ServicePrincipal"),
        (other, "26baccc8-eea7-41f1-98f4-1762cc7f685d", "alice", "User"),
        (other, "4633458b-17de-408a-b874-0445c86b69e6", TUNNEL_KEY, "User"),
    ] == roles


def test_foreign_tunnel_key_is_left_alone(azure, names):
    """A secret of that name that is not a tunnel key is neither replaced nor shown."""
    azure.change_vault(secrets={TUNNEL_KEY: ["hunter2"]})
    before = azure.resources()
    result = azure.run("create_relay.sh", *names, "--entra")
    assert 3 == result.code
    assert f"secret '{TUNNEL_KEY}' in Key Vault 'contoso-kv' is not a tunnel key" in result.err
    assert before == azure.resources()
    assert "hunter2" not in result.out + result.err
