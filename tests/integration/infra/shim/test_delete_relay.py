"""delete_relay.sh: deletes what is named, asks first, and spares what belongs to others."""

import os
import pty
import subprocess

import pytest

from tests.support.azure.az_shim.kit import INFRA
from tests.support.machine.deadline import DEADLINE


def test_deletes_hybrid_connection_and_secrets(deployed, names):
    """The hybrid connection and its secrets go; the namespace and the other developer's things stay."""
    deployed.run("create_relay.sh", *names, "--hc", "bob")
    result = deployed.run("delete_relay.sh", *names, "--yes")
    assert (0, "") == (result.code, result.err)
    assert ["bob"] == list(deployed.load()["namespaces"]["contoso-debug"]["hcs"])
    assert {"relay-bob-agent", "relay-bob-client"} == set(deployed.vault["secrets"])
    assert {"relay-alice-agent", "relay-alice-client"} == set(deployed.vault["deleted"])


def test_tunnel_key_goes_too(deployed, names):
    """The secret of create_relay.sh --entra is deleted with the others."""
    deployed.run("create_relay.sh", *names, "--entra")
    assert 0 == deployed.run("delete_relay.sh", *names, "--yes").code
    assert {} == deployed.vault["secrets"]


def test_second_run_has_nothing_to_do(deployed, names):
    """A second run deletes nothing and is not an error."""
    deployed.run("delete_relay.sh", *names, "--yes")
    before = deployed.resources()
    result = deployed.run("delete_relay.sh", *names)
    assert (0, "nothing to delete: none of these resources exist\n", "") == (result.code, result.out, result.err)
    assert before == deployed.resources()


def test_without_key_vault_secrets_stay(deployed, names):
    """Secrets are deleted only if the Key Vault is named."""
    assert 0 == deployed.run("delete_relay.sh", *names[:6], "--yes").code
    assert 2 == len(deployed.vault["secrets"])


def test_namespace_too(deployed, names):
    """--namespace-too deletes the namespace last, and never the resource group."""
    assert 0 == deployed.run("delete_relay.sh", *names, "--namespace-too", "--yes").code
    assert {} == deployed.load()["namespaces"]
    assert "debug-rg" in deployed.load()["groups"]
    assert "relay namespace delete" == deployed.commands()[-1]


def test_namespace_with_others_in_it_is_spared(deployed, names):
    """--namespace-too refuses while a hybrid connection that was not named is in the namespace."""
    deployed.run("create_relay.sh", *names, "--hc", "bob")
    before = deployed.resources()
    result = deployed.run("delete_relay.sh", *names, "--namespace-too", "--yes")
    assert 3 == result.code
    assert "contains other hybrid connections: bob" in result.err
    assert before == deployed.resources()
    assert 0 == deployed.run("delete_relay.sh", *names, "--hc", "bob", "--namespace-too", "--yes").code
    assert {} == deployed.load()["namespaces"]


def test_empty_namespace_needs_no_hc(azure):
    """A namespace without hybrid connections can be deleted by its name alone."""
    azure.change(namespaces={"contoso-debug": {"group": "debug-rg", "location": "westeurope", "hcs": {}}})
    assert 0 == azure.run("delete_relay.sh", "-g", "debug-rg", "-n", "contoso-debug", "--namespace-too", "--yes").code
    assert {} == azure.load()["namespaces"]


def test_no_terminal_and_no_yes(deployed, names):
    """Without a terminal and without --yes nothing is deleted."""
    before = deployed.resources()
    result = deployed.run("delete_relay.sh", *names)
    assert 2 == result.code
    assert "hybrid connection 'alice' in namespace 'contoso-debug'" in result.out
    assert before == deployed.resources()


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("yes\n", 0, 0), ("\n", 1, 1), ("no\n", 1, 1)])
def test_asks_on_a_terminal(deployed, names, answer, code, left):
    """On a terminal only a yes deletes."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        done = subprocess.run(
            ["bash", INFRA / "delete_relay.sh", *names],
            env=deployed.environment(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert code == done.returncode
    assert "Delete? [y/N]" in done.stderr
    assert left == len(deployed.load()["namespaces"]["contoso-debug"]["hcs"])


def test_somebody_else_was_faster(deployed, names):
    """A resource that vanished between the search and the deletion is not an error."""
    deployed.inject("relay hyco delete", "(ResourceNotFound) gone", code=3)
    assert 0 == deployed.run("delete_relay.sh", *names, "--yes").code
    assert {} == deployed.vault["secrets"]


def test_failure_in_the_middle(deployed, names):
    """After a failure a second run deletes what is left."""
    deployed.inject("keyvault secret delete", "(InternalError) out of luck", skip=1)
    assert 1 == deployed.run("delete_relay.sh", *names, "--namespace-too", "--yes").code
    assert deployed.load()["namespaces"]
    assert 0 == deployed.run("delete_relay.sh", *names, "--namespace-too", "--yes").code
    assert {} == deployed.load()["namespaces"]
    assert {} == deployed.vault["secrets"]
