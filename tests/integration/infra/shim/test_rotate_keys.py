"""rotate_keys.sh: at no moment does it renew a key that a running session holds."""

import pytest

from relay_core.hyco.connection_string import ConnectionString, parse_tunnel_key
from tests.support.azure.az_shim.kit import AGENT, CLIENT, CONFLICT, field

RULES = {AGENT: "agent-listen", CLIENT: "client-send"}


def held(azure, name):
    """The key in a secret: PrimaryKey or SecondaryKey, or None for a dead one."""
    rule = azure.hc()["rules"][RULES[name]]
    key = field(azure.secret(name), "SharedAccessKey")
    return next((which for which in ("PrimaryKey", "SecondaryKey") if rule[which] == key), None)


def rotate(azure, names, phase, *more):
    return azure.run("rotate_keys.sh", *names, "--phase", phase, *more)


def test_secondary_leaves_the_keys_in_use_alone(deployed, names):
    """Phase secondary renews only the keys that nobody holds, then lets the secrets hold them."""
    before = deployed.hc()["rules"]
    strings = [deployed.secret(name) for name in (AGENT, CLIENT)]
    result = rotate(deployed, names, "secondary")
    assert (0, "") == (result.code, result.err)
    after = deployed.hc()["rules"]
    for rule in RULES.values():
        assert before[rule]["PrimaryKey"] == after[rule]["PrimaryKey"]
        assert before[rule]["SecondaryKey"] != after[rule]["SecondaryKey"]
    assert ["SecondaryKey"] * 2 == [held(deployed, name) for name in RULES]
    assert strings != [deployed.secret(name) for name in (AGENT, CLIENT)]


def test_a_whole_rotation(deployed, names):
    """After both phases all four keys are new, the tunnel key is the old one, and the strings still parse."""
    before = deployed.hc()["rules"]
    tunnel = field(deployed.secret(AGENT), "TunnelKey")
    assert 0 == rotate(deployed, names, "secondary").code
    assert 0 == rotate(deployed, names, "primary").code
    for rule, keys in deployed.hc()["rules"].items():
        assert before[rule]["PrimaryKey"] != keys["PrimaryKey"]
        assert before[rule]["SecondaryKey"] != keys["SecondaryKey"]
    assert ["PrimaryKey"] * 2 == [held(deployed, name) for name in RULES]
    assert {tunnel} == {field(deployed.secret(name), "TunnelKey") for name in RULES}
    assert ConnectionString.parse(deployed.secret(CLIENT)).tunnel_key


def test_primary_keeps_what_started_in_between(deployed, names):
    """Phase primary leaves alone the secondary keys, which everything has that started after phase secondary."""
    rotate(deployed, names, "secondary")
    between = deployed.hc()["rules"]
    rotate(deployed, names, "primary")
    after = deployed.hc()["rules"]
    assert all(between[rule]["SecondaryKey"] == after[rule]["SecondaryKey"] for rule in RULES.values())


@pytest.mark.parametrize("phase", ["secondary", "primary"])
def test_repeated_phase_does_nothing(deployed, names, phase):
    """A phase that is done already renews nothing, whatever phase it is."""
    if phase == "secondary":
        rotate(deployed, names, phase)
    before = deployed.load()
    result = rotate(deployed, names, phase)
    assert 0 == result.code
    assert "nothing to change" in result.out
    assert before == deployed.load()


def test_names_the_next_phase(deployed, names):
    """Phase secondary ends with the command for the next phase, and names the time before which jobs count as old."""
    out = rotate(deployed, names, "secondary", "--hc", "alice").out
    assert "When all jobs and clients that were started before 20" in out
    assert "-g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --phase primary\n" in out


@pytest.mark.parametrize("phase", ["primary", "tunnel-key"])
def test_asks_while_agents_are_connected(deployed, names, phase):
    """A phase that can cut somebody needs a yes while a listener is connected, and none when nobody is."""
    rotate(deployed, names, "secondary")
    deployed.change_hc(listeners=2)
    before = deployed.resources()
    result = rotate(deployed, names, phase)
    assert 2 == result.code
    assert "2 agent(s) are connected" in result.err
    assert "add --yes to continue without confirmation" in result.err
    assert before == deployed.resources()
    assert 0 == rotate(deployed, names, phase, "--yes").code
    assert before != deployed.resources()


def test_tunnel_key_is_new_on_both_sides(deployed, names):
    """Phase tunnel-key changes the tunnel key of both strings to the same new one, and no SAS key."""
    old, rules = field(deployed.secret(AGENT), "TunnelKey"), deployed.hc()["rules"]
    assert 0 == rotate(deployed, names, "tunnel-key").code
    new = {field(deployed.secret(name), "TunnelKey") for name in RULES}
    assert 1 == len(new)
    assert {old} != new
    assert rules == deployed.hc()["rules"]
    assert ["PrimaryKey"] * 2 == [held(deployed, name) for name in RULES]


@pytest.mark.parametrize("strings", [True, False])
def test_tunnel_key_that_stands_alone(azure, names, strings):
    """Phase tunnel-key also renews the secret of create_relay.sh --entra, with or without connection strings."""
    if strings:
        azure.run("create_relay.sh", *names)
    azure.run("create_relay.sh", *names, "--entra")
    old = azure.secret("relay-alice-tunnel-key")
    assert 0 == rotate(azure, names, "tunnel-key").code
    new = azure.secret("relay-alice-tunnel-key")
    assert old != new
    assert 32 == len(parse_tunnel_key(new, "secret"))
    if strings:
        assert {new} == {field(azure.secret(name), "TunnelKey") for name in RULES}
    else:
        assert ["relay-alice-tunnel-key"] == list(azure.vault["secrets"])


@pytest.mark.parametrize(
    ("command", "skip"),
    [
        ("relay hyco authorization-rule keys renew", 0),
        ("relay hyco authorization-rule keys renew", 1),
        ("relay hyco authorization-rule keys list", 2),
        ("relay hyco authorization-rule keys list", 3),
        ("keyvault secret set", 0),
        ("keyvault secret set", 1),
    ],
)
def test_cut_short_anywhere(deployed, names, command, skip):
    """Wherever phase secondary fails, no held key is renewed, the secrets still work, and a second run completes it."""
    primary = {rule: keys["PrimaryKey"] for rule, keys in deployed.hc()["rules"].items()}
    deployed.inject(command, "(InternalError) out of luck", skip=skip)
    assert 1 == rotate(deployed, names, "secondary").code
    assert None not in [held(deployed, name) for name in RULES]
    assert 0 == rotate(deployed, names, "secondary").code
    assert ["SecondaryKey"] * 2 == [held(deployed, name) for name in RULES]
    assert primary == {rule: keys["PrimaryKey"] for rule, keys in deployed.hc()["rules"].items()}


def test_create_in_the_middle_of_a_rotation(deployed, names):
    """create_relay.sh between the phases keeps the secondary keys in the secrets."""
    rotate(deployed, names, "secondary")
    before = deployed.resources()
    assert "nothing to change" in deployed.run("create_relay.sh", *names).out
    assert before == deployed.resources()


def test_waits_out_a_conflict(deployed, names):
    """A renewal that meets another write is tried again."""
    deployed.inject("relay hyco authorization-rule keys renew", CONFLICT, times=2)
    assert 0 == rotate(deployed, names, "secondary").code


@pytest.mark.parametrize(
    ("part", "code", "sentence"),
    [
        ("namespace", 5, "Relay namespace 'contoso-debug' was not found"),
        ("hc", 5, "has no hybrid connection 'alice'"),
        ("rule", 5, "hybrid connection 'alice' has no rule 'client-send'"),
        ("secret", 3, "has no complete connection string in 'relay-alice-client'"),
        ("tunnel key", 3, "has no complete connection string in 'relay-alice-agent'"),
    ],
)
def test_missing_part(deployed, names, part, code, sentence):
    """What is missing is named before any key is renewed."""
    state = deployed.load()
    hcs, secrets = state["namespaces"]["contoso-debug"]["hcs"], state["vaults"]["contoso-kv"]["secrets"]
    if part == "namespace":
        state["namespaces"].clear()
    elif part == "hc":
        hcs.clear()
    elif part == "rule":
        del hcs["alice"]["rules"]["client-send"]
    elif part == "secret":
        del secrets[CLIENT]
    else:
        secrets[AGENT] = [secrets[AGENT][0].split(";TunnelKey")[0]]
    deployed.save(state)
    before = deployed.resources()
    result = rotate(deployed, names, "secondary")
    assert code == result.code
    assert sentence in result.err
    assert before == deployed.resources()
