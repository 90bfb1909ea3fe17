"""The stand-in for `az` refuses what the real one refuses, with its exit codes and words."""

import json
import subprocess

import pytest

from tests.support.azure.az_shim.argtable import COMMANDS
from tests.support.azure.az_shim.fake_az import TABLE_FILE
from tests.support.azure.az_shim.kit import INFRA, USER


def az(azure, *arguments):
    return subprocess.run([azure.bin / "az", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("relay foo", 2, "'relay foo' is misspelled or not recognized by the system."),
        ("relay namespace create -g g -n abcdef -l l --sku Standard", 2, "unrecognized arguments: --sku"),
        ("relay namespace create -g g -l l", 2, "the following arguments are required: --name/-n"),
        ("relay namespace show -g g", 2, "the following arguments are required: --name/-n"),
        ("relay namespace show extra -g g -n abcdef", 2, "unrecognized arguments: extra"),
        ("relay namespace show -g debug-rg -n", 2, "expected one argument"),
        ("relay namespace show -g debug-rg -n abc", 1, "Invalid format"),
        ("relay namespace show -g debug-rg -n abcdef", 3, "(ResourceNotFound)"),
        ("keyvault secret set --vault-name contoso-kv", 2, "required: --name/-n"),
        ("keyvault secret set --vault-name contoso-kv -n x", 1, "[Required] --value VALUE | --file PATH"),
        ("keyvault secret show --vault-name contoso-kv -n x", 3, "(SecretNotFound)"),
        ("keyvault secret show --vault-name other-kv -n x", 1, "Failed to resolve"),
        ("account set", 2, "the following arguments are required: --"),
        ("account set -s other", 1, "The subscription of 'other' doesn't exist in cloud 'AzureCloud'."),
        ("keyvault create -n x", 2, "the following arguments are required: --resource-group/-g"),
        ("keyvault create -g vault-rg -n contoso-kv --enable-rbac-authorization true", 1, "contoso-kv already exists"),
        ("keyvault create -g debug-rg -n contoso-kv --enable-rbac-authorization true", 1, "(VaultAlreadyExists)"),
    ],
)
def test_refusals(azure, arguments, code, text):
    """Each bad command line ends with the exit code and words of the real CLI."""
    done = az(azure, *arguments.split())
    assert (code, "") == (done.returncode, done.stdout)
    assert text in done.stderr


def test_not_signed_in(azure):
    """Without a login every good command line fails as the real CLI does."""
    azure.change(signed_in=False)
    done = az(azure, "account", "show")
    assert (1, "ERROR: Please run 'az login' to setup account.\n") == (done.returncode, done.stderr)


def test_new_vault_is_closed_to_its_maker(azure):
    """Who makes a vault may write no secret into it before the role is given."""
    az(azure, "keyvault", "create", "-g", "debug-rg", "-n", "new-kv", "--enable-rbac-authorization", "true")
    write = ["keyvault", "secret", "set", "--vault-name", "new-kv", "-n", "x", "--value", "y"]
    assert "(Forbidden)" in az(azure, *write).stderr
    scope = az(azure, "keyvault", "show", "-n", "new-kv", "--query", "id", "-o", "tsv").stdout.strip()
    role = ["--role", "Key Vault Secrets Officer", "--scope", scope, "--assignee-object-id", USER]
    az(azure, "role", "assignment", "create", *role, "--assignee-principal-type", "User")
    assert "y" == json.loads(az(azure, *write).stdout)["value"]


def test_equals_sign_and_query(azure):
    """`--option=value` and the queries that the scripts use work."""
    query = "[resourceGroup,properties.vaultUri]"
    done = az(azure, "keyvault", "show", "--name=contoso-kv", "--query", query, "-o", "tsv")
    assert "vault-rg\nhttps://contoso-kv.vault.azure.net/\n" == done.stdout


def test_table_has_exactly_the_commands_of_the_scripts():
    """argtable.py wrote az_args.json for its list of commands; the file names the version of the Azure CLI."""
    table = json.loads(TABLE_FILE.read_text())
    assert COMMANDS == list(table["commands"])
    assert table["source"].startswith("azure-cli 2.")


def test_scripts_call_az_in_one_place_only():
    """Every call goes through run_az, which keeps az's output out of the terminal."""
    calls = [
        line.strip()
        for path in INFRA.glob("*.sh")
        for line in path.read_text().splitlines()
        if line.strip().startswith("az ") and "--help" not in line
    ]
    assert ['az "$@" --only-show-errors ${SUBSCRIPTION:+--subscription "$SUBSCRIPTION"} \\'] == calls
