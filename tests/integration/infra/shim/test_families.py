"""The scripts with families of hybrid connections, for more than 25 nodes, against the small Azure."""

import pytest

from relay_core.hyco.connection_string import ConnectionString
from tests.support.azure.az_shim.kit import AGENT, CLIENT, PRINCIPAL, TUNNEL_KEY

HCS = ["alice", "alice-1", "alice-2"]
NODES = ("--nodes", "75")
RULES = {AGENT: "agent-listen", CLIENT: "client-send"}


@pytest.fixture
def family(azure, names):
    """Azure after create_relay.sh for 75 nodes, with an empty record of calls."""
    assert 0 == azure.run("create_relay.sh", *names, *NODES).code
    azure.forget_calls()
    return azure


def keys(azure, secret):
    """The keys in a stored connection string, in the order of the hybrid connections."""
    parsed = ConnectionString.parse(azure.secret(secret))
    assert 3 == parsed.endpoint().size
    return [parsed.key, *parsed.family_keys]


def keys_of_rules(azure, secret, key):
    return [azure.hc(name)["rules"][RULES[secret]][key] for name in HCS]


@pytest.mark.parametrize("how", [(), ("--bicep",)])
def test_each_hybrid_connection_has_its_key_in_the_secret(azure, names, how):
    """75 nodes are three hybrid connections with two rules each, and still two secrets with one tunnel key."""
    assert 0 == azure.run("create_relay.sh", *names, *NODES, *how).code
    assert HCS == list(azure.load()["namespaces"]["contoso-debug"]["hcs"])
    for secret in (AGENT, CLIENT):
        assert keys_of_rules(azure, secret, "PrimaryKey") == keys(azure, secret)
    assert {AGENT, CLIENT} == set(azure.vault["secrets"])
    agent, client = (ConnectionString.parse(azure.secret(name)) for name in (AGENT, CLIENT))
    assert agent.tunnel_key == client.tunnel_key
    assert agent.tunnel_key


@pytest.mark.parametrize(("nodes", "count"), [("1", 1), ("25", 1), ("26", 2), ("50", 2)])
def test_one_hybrid_connection_for_25_nodes(azure, names, nodes, count):
    """The number is rounded up."""
    azure.run("create_relay.sh", *names, "--nodes", nodes)
    assert count == len(azure.load()["namespaces"]["contoso-debug"]["hcs"])


@pytest.mark.parametrize("again", [NODES, (), ("--nodes", "10"), ("--bicep",)])
def test_second_run_changes_nothing(family, names, again):
    """The stored connection string contains the size: without --nodes, or with fewer, the family stays as it is."""
    before = family.load()
    result = family.run("create_relay.sh", *names, *again)
    assert result.out.startswith("nothing to change:")
    assert before == family.load()


def test_a_hybrid_connection_becomes_a_family(deployed, names):
    """Its keys and its tunnel key stay, so running jobs and clients stay connected."""
    before = [ConnectionString.parse(deployed.secret(secret)) for secret in (AGENT, CLIENT)]
    assert 0 == deployed.run("create_relay.sh", *names, *NODES).code
    after = [ConnectionString.parse(deployed.secret(secret)) for secret in (AGENT, CLIENT)]
    assert [(one.key, one.tunnel_key) for one in before] == [(one.key, one.tunnel_key) for one in after]
    assert [2, 2] == [len(one.family_keys) for one in after]


def test_an_interrupted_run_is_completed(family, names):
    """A hybrid connection that is missing is created, and both secrets get its keys."""
    state = family.load()
    del state["namespaces"]["contoso-debug"]["hcs"]["alice-1"]
    family.save(state)
    result = family.run("create_relay.sh", *names)
    assert "create hybrid connection 'alice-1'" in result.out
    for secret in (AGENT, CLIENT):
        assert keys_of_rules(family, secret, "PrimaryKey") == keys(family, secret)


def test_dry_run_names_each_hybrid_connection(azure, names):
    """--dry-run prints what is missing and creates nothing."""
    before = azure.load()
    out = azure.run("create_relay.sh", *names, *NODES, "--dry-run").out
    assert before == azure.load()
    assert HCS == [name for name in HCS if f"would create hybrid connection '{name}'\n" in out]
    assert 2 == out.count("would store secret")


def test_somebody_s_hybrid_connection_is_not_taken(azure, names):
    """One with secrets of its own is a colleague's, and nothing is changed."""
    colleague = tuple("alice-1" if name == "alice" else name for name in names)
    azure.run("create_relay.sh", *colleague)
    before = azure.load()
    result = azure.run("create_relay.sh", *names, *NODES)
    assert 3 == result.code
    assert "'alice-1' is a separate hybrid connection, so it cannot become part of the family 'alice'" in result.err
    assert before == azure.load()


@pytest.mark.parametrize("how", [(), ("--entra",), ("--bicep",)])
def test_a_member_of_a_family_has_no_secrets_of_its_own(azure, names, how):
    """The name of a hybrid connection in a family is refused with one sentence, and nothing is changed."""
    azure.run("create_relay.sh", *names, *NODES, *[option for option in how if option == "--entra"])
    before = azure.load()
    result = azure.run("create_relay.sh", *(name.replace("alice", "alice-1") for name in names), *how)
    assert 3 == result.code
    assert "error: 'alice-1' is a hybrid connection of the family 'alice'. hint: use --hc alice" in result.err
    assert 1 == result.err.count("\n")
    assert before["namespaces"] == azure.load()["namespaces"]
    assert before["vaults"] == azure.load()["vaults"]


@pytest.mark.parametrize("namespace", ["contoso-debug", "contoso-other"])
def test_a_numbered_name_after_the_family_is_free(family, names, namespace):
    """A name with a larger number, or in another namespace, can have secrets of its own."""
    number = "3" if namespace == "contoso-debug" else "1"
    own = [{"alice": f"alice-{number}", "contoso-debug": namespace}.get(name, name) for name in names]
    assert 0 == family.run("create_relay.sh", *own).code
    assert f"alice-{number}" in family.load()["namespaces"][namespace]["hcs"]
    assert "nothing to change" in family.run("create_relay.sh", *own).out


def test_roles_cover_each_hybrid_connection(azure, names):
    """The job's identity may listen on each one, and read one secret; nothing is granted on the namespace."""
    azure.run("create_relay.sh", *names, *NODES, "--agent-principal", PRINCIPAL)
    scopes = [scope.rsplit("/", 2)[1:] for _, _, scope, *_ in azure.load()["roles"]]
    assert [*(["hybridConnections", name] for name in HCS), ["secrets", AGENT]] == scopes


def test_with_entra_the_name_has_the_size(azure, names):
    """No connection string exists that could contain the size, so the printed commands do."""
    out = azure.run("create_relay.sh", *names, *NODES, "--entra").out
    assert "--debug-relay-connection-name alice:3\n" in out
    assert "relay-client --hc alice:3 --namespace contoso-debug" in out
    assert [TUNNEL_KEY] == list(azure.vault["secrets"])


@pytest.mark.parametrize("nodes", ["0", "-1", "5001", "many", "1.5"])
def test_invalid_numbers_of_nodes(azure, names, nodes):
    """They are refused with the limit before Azure is asked."""
    result = azure.run("create_relay.sh", *names, "--nodes", nodes)
    assert 2 == result.code
    assert "use a number from 1 to 5000" in result.err


def test_both_keys_of_all_rules_are_rotated(family, names):
    """Each phase renews its key on every hybrid connection and stores one connection string with all of them."""
    for phase, key in (("secondary", "SecondaryKey"), ("primary", "PrimaryKey")):
        before = [keys_of_rules(family, secret, key) for secret in (AGENT, CLIENT)]
        assert 0 == family.run("rotate_keys.sh", *names, "--phase", phase, "--yes").code
        for secret, old in zip((AGENT, CLIENT), before, strict=True):
            assert keys_of_rules(family, secret, key) == keys(family, secret)
            assert not set(old) & set(keys(family, secret))
        assert "nothing to change" in family.run("rotate_keys.sh", *names, "--phase", phase, "--yes").out


def test_a_new_tunnel_key_keeps_the_other_keys(family, names):
    """Phase tunnel-key replaces only that field."""
    before = ConnectionString.parse(family.secret(AGENT))
    assert 0 == family.run("rotate_keys.sh", *names, "--phase", "tunnel-key", "--yes").code
    after = ConnectionString.parse(family.secret(AGENT))
    assert (before.key, before.family_keys) == (after.key, after.family_keys)
    assert before.tunnel_key != after.tunnel_key


@pytest.mark.parametrize("how", [(), ("--entra",)])
def test_a_family_is_deleted_as_a_whole(azure, names, how):
    """All hybrid connections and the secrets disappear; a colleague's stay."""
    colleague = tuple("alice-3" if name == "alice" else name for name in names)
    azure.run("create_relay.sh", *colleague)
    azure.run("create_relay.sh", *names, *NODES, *how)
    assert 0 == azure.run("delete_relay.sh", *names, "--yes").code
    assert ["alice-3"] == list(azure.load()["namespaces"]["contoso-debug"]["hcs"])
    assert {"relay-alice-3-agent", "relay-alice-3-client"} == set(azure.vault["secrets"])


@pytest.mark.parametrize("how", [(), ("--entra",), ("--bicep",)])
def test_without_a_key_vault_the_whole_family_is_deleted(azure, names, how):
    """The hybrid connections show to which family they belong; a colleague's has the next number and stays."""
    azure.run("create_relay.sh", *(name.replace("alice", "alice-3") for name in names))
    azure.run("create_relay.sh", *names, *NODES, *how)
    secrets = set(azure.vault["secrets"])
    assert 0 == azure.run("delete_relay.sh", *names[:6], "--yes").code
    assert ["alice-3"] == list(azure.load()["namespaces"]["contoso-debug"]["hcs"])
    assert secrets == set(azure.vault["secrets"])


def test_a_namespace_with_only_this_family_is_deleted(family, names):
    """Its other hybrid connections do not count as those of other developers."""
    assert 0 == family.run("delete_relay.sh", *names, "--namespace-too", "--yes").code
    assert not family.load()["namespaces"]
