"""create_relay.sh against the small Azure: what it makes, what it keeps, what it refuses."""

import base64
import re
import shlex

import pytest

from relay_agent.settings.arguments import parse_step_arguments
from relay_agent.settings.model import DebugSettings
from relay_client import cli
from relay_client.ui.text import parse_ports
from relay_core.access_settings import AccessSettings
from relay_core.hyco.connection_string import ConnectionString
from relay_core.program.options import access_settings
from tests.support.azure.az_shim.kit import AGENT, CLIENT, PRINCIPAL, TUNNEL_KEY, field


def test_creates_everything(azure, names):
    """A first run makes the namespace, the hybrid connection, one Listen and one Send rule, and two secrets."""
    result = azure.run("create_relay.sh", *names)
    assert (0, "") == (result.code, result.err)
    hc = azure.hc()
    assert hc["authorized"]
    assert {"agent-listen": ["Listen"], "client-send": ["Send"]} == {k: v["rights"] for k, v in hc["rules"].items()}
    assert {AGENT, CLIENT} == set(azure.vault["secrets"])


@pytest.mark.parametrize("how", [(), ("--bicep",)])
def test_strings_are_what_agent_and_client_read(azure, names, how):
    """Each secret parses as a connection string of its own rule, and both have the same tunnel key of 32 bytes."""
    azure.run("create_relay.sh", *names, *how)
    agent, client = (ConnectionString.parse(azure.secret(name)) for name in (AGENT, CLIENT))
    assert ("agent-listen", "client-send") == (agent.key_name, client.key_name)
    assert azure.hc()["rules"]["agent-listen"]["PrimaryKey"] == agent.key
    assert azure.hc()["rules"]["client-send"]["PrimaryKey"] == client.key
    assert ("contoso-debug.servicebus.windows.net", "alice") == (agent.host, agent.entity_path)
    assert agent.tunnel_key == client.tunnel_key
    assert agent.tunnel_key


@pytest.mark.parametrize("how", [(), ("--bicep",)])
def test_second_run_changes_nothing(azure, names, how):
    """A second run, plain or with --bicep, writes nothing: not even a new version of a secret."""
    azure.run("create_relay.sh", *names, *how, "--agent-principal", PRINCIPAL)
    azure.run("create_relay.sh", *names, "--agent-principal", PRINCIPAL)
    before = azure.load()
    azure.forget_calls()
    result = azure.run("create_relay.sh", *names, *how, "--agent-principal", PRINCIPAL)
    assert 0 == result.code
    assert result.out.startswith("nothing to change:")
    assert before == azure.load()
    assert {"show", "list", "exists"} == {command.split()[-1] for command in azure.commands()}


def test_dry_run_names_what_would_be_created(azure, names):
    """--dry-run prints each missing thing and asks Azure for nothing but what exists."""
    before = azure.load()
    result = azure.run("create_relay.sh", *names, "--dry-run")
    assert 0 == result.code
    assert before == azure.load()
    assert [
        "would create Relay namespace 'contoso-debug' in westeurope",
        "would create hybrid connection 'alice'",
        "would create rule 'agent-listen' (Listen) on 'alice'",
        "would create rule 'client-send' (Send) on 'alice'",
        f"would store secret '{AGENT}' in Key Vault 'contoso-kv'",
        f"would store secret '{CLIENT}' in Key Vault 'contoso-kv'",
        "dry run: nothing was created",
    ] == result.out.splitlines()


def test_prints_the_next_command(azure, names):
    """The last lines show what the job and the laptop need, without any key."""
    out = azure.run("create_relay.sh", *names).out
    assert "KEY_VAULT_URL=https://contoso-kv.vault.azure.net/" in out
    assert f"--debug-relay-connection-string-secret {AGENT}" in out
    assert f"  relay-client --hc alice --key-vault contoso-kv --connection-string-secret {CLIENT} --ports 5678\n" in out


def words_after(start, out):
    """The words of the printed line that begins with `start`, without that."""
    (line,) = [line.strip() for line in out.splitlines() if line.strip().startswith(start)]
    return shlex.split(line.removeprefix(start))


@pytest.mark.parametrize(
    ("how", "client", "step"),
    [
        (
            (),
            AccessSettings(hc="alice", key_vault="contoso-kv", connection_string_secret=CLIENT),
            {"hc": "alice", "connection_string_secret": AGENT},
        ),
        (
            ("--entra",),
            AccessSettings(hc="alice", namespace="contoso-debug", key_vault="contoso-kv", tunnel_key_secret=TUNNEL_KEY),
            {"hc": "alice"},
        ),
    ],
)
def test_what_it_prints_is_understood(azure, names, how, client, step):
    """relay-client's own parser reads the printed command, and a step's the printed arguments, as they are meant."""
    out = azure.run("create_relay.sh", *names, *how).out
    parsed = cli.make_parser().parse_args(words_after("relay-client", out))
    assert client == access_settings(parsed)
    assert [5678] == list(parse_ports(parsed.ports))
    assert DebugSettings(AccessSettings(**step)) == parse_step_arguments(words_after("arguments:", out))


def test_variables_that_it_prints(azure, names):
    """The variables for a job without a connection string are those that an agent reads."""
    out = azure.run("create_relay.sh", *names, "--entra").out
    assert {
        "RELAY_NAMESPACE": "contoso-debug",
        "KEY_VAULT_URL": "https://contoso-kv.vault.azure.net/",
        "RELAY_TUNNEL_KEY_SECRET": TUNNEL_KEY,
    } == dict(word.split("=", 1) for word in words_after("environment:", out))


def test_several_developers(azure, names):
    """Each --hc gets its own rules, secrets and tunnel key; a name given twice counts once."""
    assert 0 == azure.run("create_relay.sh", *names, "--hc", "bob", "--hc", "Alice").code
    assert ["alice", "bob"] == list(azure.load()["namespaces"]["contoso-debug"]["hcs"])
    assert 4 == len(azure.vault["secrets"])
    assert field(azure.secret(AGENT), "TunnelKey") != field(azure.secret("relay-bob-agent"), "TunnelKey")


def test_secret_names_of_unusual_names(azure, names):
    """Names that differ only in characters a secret's name cannot hold get different, valid secret names."""
    assert 0 == azure.run("create_relay.sh", *names, "--hc", "a.b", "--hc", "a_b", "--hc", "Bob").code
    secrets = set(azure.vault["secrets"])
    assert 8 == len(secrets)
    assert {"relay-bob-agent", "relay-bob-client"} < secrets
    assert all(re.fullmatch(r"[0-9a-z-]{1,127}", name) for name in secrets)


def test_longest_name_fits(azure, names):
    """A hybrid connection of 100 characters still gives secret names within Key Vault's 127."""
    assert 0 == azure.run("create_relay.sh", *names[:4], "--hc", "a." * 49 + "aa", *names[6:]).code
    assert all(len(name) <= 127 for name in azure.vault["secrets"])


def test_existing_rules_are_not_written_again(deployed, names):
    """A lost secret is stored again from the keys that exist: no rule is touched."""
    rules = deployed.hc()["rules"]
    deployed.change_vault(secrets={AGENT: deployed.vault["secrets"][AGENT]})
    assert 0 == deployed.run("create_relay.sh", *names).code
    assert rules == deployed.hc()["rules"]
    assert "relay hyco authorization-rule create" not in deployed.commands()


def test_tunnel_key_is_kept(deployed, names):
    """A secret that is written again keeps the tunnel key that running agents have."""
    kept = field(deployed.secret(AGENT), "TunnelKey")
    deployed.change_vault(secrets={AGENT: deployed.vault["secrets"][AGENT]})
    deployed.run("create_relay.sh", *names)
    assert [1, 1] == [len(versions) for versions in deployed.vault["secrets"].values()]
    assert kept == field(deployed.secret(CLIENT), "TunnelKey")


def test_client_gets_the_agents_tunnel_key(deployed, names):
    """If the two differ, the agent's wins: running jobs hold it."""
    other = base64.b64encode(bytes(32)).decode()
    kept = field(deployed.secret(AGENT), "TunnelKey")
    secrets = deployed.vault["secrets"]
    secrets[CLIENT] = [secrets[CLIENT][0].replace(kept, other)]
    deployed.change_vault(secrets=secrets)
    assert 0 == deployed.run("create_relay.sh", *names).code
    assert [1, 2] == [len(deployed.vault["secrets"][name]) for name in (AGENT, CLIENT)]
    assert kept == field(deployed.secret(CLIENT), "TunnelKey")


@pytest.mark.parametrize("tail", ["", ";TunnelKey=abc"])
def test_string_without_a_good_tunnel_key_is_completed(deployed, names, tail):
    """Strings stored by hand, without a tunnel key or with a bad one, get a new one in common."""
    bare = {name: [versions[0].split(";TunnelKey")[0] + tail] for name, versions in deployed.vault["secrets"].items()}
    deployed.change_vault(secrets=bare)
    assert 0 == deployed.run("create_relay.sh", *names).code
    assert ConnectionString.parse(deployed.secret(AGENT)).tunnel_key
    assert field(deployed.secret(AGENT), "TunnelKey") == field(deployed.secret(CLIENT), "TunnelKey")


def test_stale_key_is_replaced(deployed, names):
    """A stored string whose key was renewed by somebody else is stored again."""
    renewed = {"rights": ["Listen"], "PrimaryKey": "P=", "SecondaryKey": "S="}
    deployed.change_hc(rules={**deployed.hc()["rules"], "agent-listen": renewed})
    assert 0 == deployed.run("create_relay.sh", *names).code
    assert "P=" == field(deployed.secret(AGENT), "SharedAccessKey")
    assert 1 == len(deployed.vault["secrets"][CLIENT])


def test_new_hybrid_connection_gets_a_new_tunnel_key(deployed, names):
    """After delete and create, recovered secrets get new keys and a new tunnel key: nothing of the old life works."""
    old = field(deployed.secret(AGENT), "TunnelKey")
    assert 0 == deployed.run("delete_relay.sh", *names, "--yes").code
    result = deployed.run("create_relay.sh", *names)
    assert 0 == result.code
    assert f"recover deleted secret '{AGENT}'" in result.out
    assert old != field(deployed.secret(AGENT), "TunnelKey") == field(deployed.secret(CLIENT), "TunnelKey")


def test_secret_deleted_by_mistake_comes_back(deployed, names):
    """A deleted secret of a living hybrid connection is recovered as it was, with no new version."""
    vault = deployed.vault
    deployed.change_vault(secrets={}, deleted=vault["secrets"])
    assert 0 == deployed.run("create_relay.sh", *names).code
    assert vault["secrets"] == deployed.vault["secrets"]


def test_recovery_takes_a_moment(deployed, names):
    """While Key Vault still recovers, the script waits, and a write that comes too early is tried again."""
    deployed.run("delete_relay.sh", *names, "--yes")
    gone = "(SecretNotFound) A secret with (name/id) relay-alice-agent was not found in this key vault."
    deployed.inject("keyvault secret show", gone, code=3, times=3)
    busy = '(Conflict) retry later\nInner error: {"code": "ObjectIsBeingRecovered"}'
    deployed.inject("keyvault secret set", busy, times=2)
    assert 0 == deployed.run("create_relay.sh", *names).code


def test_bicep_deploys_once_with_keys_in_a_file(azure, names):
    """--bicep makes one deployment; the tunnel key travels in a private file, for what must be written only."""
    azure.run("create_relay.sh", *names)
    azure.run("create_relay.sh", *names, "--hc", "bob", "--bicep")
    (given,) = azure.load()["deployments"]
    assert ["bob"] == list(given["tunnelKeys"])
    assert ["alice", "bob"] == [connection["name"] for connection in given["hybridConnections"]]
    assert 1 == len(azure.vault["secrets"][AGENT])
    assert "relay hyco create" not in azure.commands()[azure.commands().index("deployment group create") :]


def test_roles(azure, names):
    """A principal gets the Relay role on its hybrid connection and may read its own secret, and no more."""
    options = ("--agent-principal", PRINCIPAL, "--client-principal", f"{PRINCIPAL}:Group")
    assert 0 == azure.run("create_relay.sh", *names, *options).code
    roles = [(role, scope.split("/providers/")[1], kind) for _, role, scope, kind in azure.load()["roles"]]
    relay = "Microsoft.Relay/namespaces/contoso-debug/hybridConnections/alice"
    vault = "Microsoft.KeyVault/vaults/contoso-kv/secrets"
    assert [
        ("26e0b698-aa6d-4085-9386-aadae190014d", relay, "ServicePrincipal"),
        ("4633458b-17de-408a-b874-0445c86b69e6", f"{vault}/{AGENT}", "ServicePrincipal"),
        ("26baccc8-eea7-41f1-98f4-1762cc7f685d", relay, "Group"),
        ("4633458b-17de-408a-b874-0445c86b69e6", f"{vault}/{CLIENT}", "Group"),
    ] == roles


def test_resource_group_needs_a_location(azure, names):
    """A missing resource group is created where --location specifies, and never at a guessed place."""
    result = azure.run("create_relay.sh", "-g", "new-rg", *names[2:])
    assert 3 == result.code
    assert "resource group 'new-rg' was not found. hint: add --location" in result.err
    assert 0 == azure.run("create_relay.sh", "-g", "new-rg", *names[2:], "-l", "northeurope").code
    assert "northeurope" == azure.load()["groups"]["new-rg"]


def test_name_is_taken(azure, names):
    """A namespace name that belongs to somebody else is reported as in use."""
    azure.change(taken=["contoso-debug"])
    result = azure.run("create_relay.sh", *names)
    assert 3 == result.code
    assert "the name 'contoso-debug' is in use" in result.err


def test_provider_is_not_registered(azure, names):
    """`az` registers a subscription that never used Relay; who may not do that reads the command to pass on."""
    azure.change(provider_registered=False, denied=["Microsoft.Relay/register/action"])
    result = azure.run("create_relay.sh", *names)
    assert 3 == result.code
    assert "az provider register --namespace Microsoft.Relay --wait" in result.err


def test_no_such_vault(azure, names):
    """A missing Key Vault is found before anything is created."""
    result = azure.run("create_relay.sh", *names[:-1], "other-kv")
    assert 3 == result.code
    assert "Key Vault 'other-kv' was not found" in result.err
    assert {} == azure.load()["namespaces"]


@pytest.mark.parametrize(("permission", "made"), [("get", False), ("set", True)])
def test_vault_refuses(azure, names, permission, made):
    """Without the role on the vault the script ends with exit code 4; a later run completes the work."""
    azure.change_vault(forbidden=[permission])
    result = azure.run("create_relay.sh", *names)
    assert 4 == result.code
    assert "Key Vault Secrets Officer" in result.err
    assert "5 minutes" in result.err
    assert made == bool(azure.load()["namespaces"])
    azure.change_vault(forbidden=[])
    assert 0 == azure.run("create_relay.sh", *names).code


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "Endpoint=sb://fabrikam.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=alice",
        "Endpoint=sb://contoso-debug.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=al",
    ],
)
@pytest.mark.parametrize("script", ["create_relay.sh", "delete_relay.sh"])
def test_foreign_secret_is_left_alone(azure, names, script, value):
    """A secret of that name with anything else in it is neither replaced nor deleted nor shown."""
    azure.change_vault(secrets={AGENT: [value]})
    before = azure.resources()
    result = azure.run(script, *names)
    assert 3 == result.code
    assert "is not the connection string of 'alice' in 'contoso-debug'" in result.err
    assert before == azure.resources()
    assert value not in result.out + result.err


def test_open_hybrid_connection_is_refused(deployed, names):
    """A hybrid connection that needs no key to send would open the debugger to anybody."""
    deployed.change_hc(authorized=False)
    result = deployed.run("create_relay.sh", *names)
    assert 3 == result.code
    assert "allows connections without a key" in result.err


def test_rule_with_other_rights_is_refused(deployed, names):
    """A rule of our name with more rights is not handed to a job."""
    rules = deployed.hc()["rules"]
    rules["agent-listen"]["rights"] = ["Listen", "Send"]
    deployed.change_hc(rules=rules)
    result = deployed.run("create_relay.sh", *names)
    assert 3 == result.code
    assert "rule 'agent-listen' on 'alice' must have the right Listen and no other right" in result.err


@pytest.mark.parametrize(
    ("command", "skip"),
    [
        ("relay namespace create", 0),
        ("relay hyco create", 0),
        ("relay hyco authorization-rule create", 0),
        ("relay hyco authorization-rule create", 1),
        ("relay hyco authorization-rule keys list", 1),
        ("keyvault secret set", 0),
        ("keyvault secret set", 1),
    ],
)
def test_interrupted_anywhere_a_second_run_completes(azure, names, command, skip):
    """Whichever write fails, the same command again leads to two good strings with one tunnel key."""
    azure.inject(command, "(InternalError) out of luck", skip=skip)
    assert 1 == azure.run("create_relay.sh", *names).code
    assert 0 == azure.run("create_relay.sh", *names).code
    rules = azure.hc()["rules"]
    assert rules["agent-listen"]["PrimaryKey"] == field(azure.secret(AGENT), "SharedAccessKey")
    assert rules["client-send"]["PrimaryKey"] == field(azure.secret(CLIENT), "SharedAccessKey")
    assert field(azure.secret(AGENT), "TunnelKey") == field(azure.secret(CLIENT), "TunnelKey")
