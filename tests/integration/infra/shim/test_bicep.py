"""The Bicep files: clean under the checker, and the checker finds planted faults.

No compiler is involved, but where a `bicep` binary is on the PATH, `bicep build` runs too.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.azure.az_shim.kit import INFRA
from tests.support.azure.bicep_check import check, check_parameters, parameters_of

TEMPLATES = ["main.bicep", "modules/hybrid-connection.bicep", "modules/secret.bicep", "modules/types.bicep"]
HC = "modules/hybrid-connection.bicep"
SECRET = "modules/secret.bicep"


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_is_clean(name):
    """Syntax, names, properties, secrets and order of writes of each template have no problem."""
    assert check(INFRA / name) == []


def test_every_template_is_checked():
    """No Bicep file is left out of the list above."""
    assert sorted(TEMPLATES) == sorted(str(path.relative_to(INFRA)) for path in INFRA.rglob("*.bicep"))


def test_example_parameters_fit_the_template():
    """The example gives all required parameters of main.bicep and no others."""
    assert check_parameters(INFRA / "main.bicepparam") == []


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("main.bicep", "name: namespaceName\n", "name: nameSpaceName\n", "'nameSpaceName' is not declared"),
        ("main.bicep", "privateLinkServiceId: namespace.id", "privateLinkServiceId: name_space.id", "is not declared"),
        ("main.bicep", "empty(logAnalytics", "isEmpty(logAnalytics", "'isEmpty' is not declared"),
        ("main.bicep", "param tags object = {}", "param namespaceName object = {}", "is declared twice"),
        ("main.bicep", "    publicNetworkAccess: publicNetworkAccess\n", "", "'publicNetworkAccess' is not used"),
        ("main.bicep", "minimumTlsVersion: '1.2'", "minimumTlsVersion: '1.0'", "is one of 1.2, 1.3, not '1.0'"),
        ("main.bicep", "minimumTlsVersion:", "minTlsVersion:", "has no property 'minTlsVersion'"),
        ("main.bicep", "'Microsoft.Relay/namespaces@2026", "'Microsoft.Relay/namespace@2026", "unknown resource type"),
        (
            "main.bicep",
            "  name: namespaceName\n  location: location\n",
            "  name: namespaceName\n",
            "property 'location'",
        ),
        ("main.bicep", "@batchSize(1)\n", "", "it needs @batchSize(1)"),
        ("main.bicep", "@batchSize(1)", "@batchSize(2)", "it needs @batchSize(1)"),
        ("main.bicep", "@batchSize(1)", "@batchsize(1)", "unknown decorator @batchsize"),
        ("main.bicep", "connection.name]", "connection.hcName]", "type 'hybridConnectionType' has no field 'hcName'"),
        ("main.bicep", "@secure()\nparam tunnelKeys", "param tunnelKeys", "is @secure, but what goes into it is not"),
        ("main.bicep", "= namespace.id\n", "= string(tunnelKeys)\n", "would put a secret into the deployment history"),
        ("main.bicep", "= namespace.id\n", "= namespace.listKeys().primaryKey\n", "would put a secret into the"),
        ("main.bicep", "    keyVaultName: keyVaultName\n", "", "needs the parameter 'keyVaultName'"),
        ("main.bicep", "    tunnelKey: ", "    key: ", "has no parameter 'key'"),
        ("main.bicep", "modules/hybrid-connection.bicep", "modules/connection.bicep", "module not found"),
        ("main.bicep", "import { hybridConnectionType }", "import { hcType }", "types.bicep exports no 'hcType'"),
        ("main.bicep", "@description('Resource group of the Key Vault.')\n", "", "has no @description"),
        ("main.bicep", "  sku: {\n", "  sku {\n", "syntax error"),
        (HC, "rights: ['Send']", "rights: ['Sending']", "is one of Listen, Send, Manage, not 'Sending'"),
        (HC, "    rights: ['Listen']\n", "", "needs the property 'rights'"),
        (HC, "requiresClientAuthorization", "requireClientAuthorization", "'requireClientAuthorization'"),
        (HC, "  dependsOn: [listenRules]\n", "", "write rules at the same time: it needs dependsOn"),
        (HC, "@batchSize(1)\nresource listenRules", "resource listenRules", "it needs @batchSize(1)"),
        (HC, "connection.?size", "connection.?count", "type 'hybridConnectionType' has no field 'count'"),
        (SECRET, "reader.id, secretsUserRole", "reader.oid, secretsUserRole", "'principalType' has no field 'oid'"),
        (
            HC,
            "'Microsoft.Authorization/roleAssignments@2022",
            "'Microsoft.Authorization/roles@2022",
            "unknown resource",
        ),
        (SECRET, "@secure()\n", "", "comes from a parameter that is not @secure"),
        (SECRET, "${connectionString}", "${secretName}", "comes from a parameter that is not @secure"),
        (SECRET, "principalId:", "principal:", "has no property 'principal'"),
    ],
)
def test_planted_fault_is_found(tmp_path, name, old, new, problem):
    """A copy with one fault is not clean, and the problem names that fault."""
    shutil.copytree(INFRA, tmp_path / "infra")
    path = tmp_path / "infra" / name
    source = path.read_text()
    assert old in source
    path.write_text(source.replace(old, new, 1))
    assert [found for found in check(path) if problem in found], check(path)


def test_module_that_lost_secure_is_found_where_it_is_called(tmp_path):
    """A key that goes into a parameter that is not secure is a problem of the caller."""
    shutil.copytree(INFRA, tmp_path / "infra")
    path = tmp_path / "infra" / SECRET
    path.write_text(path.read_text().replace("@secure()\n", ""))
    problems = check(tmp_path / "infra" / HC)
    for name in ("connectionString", "familyKeys", "tunnelKey"):
        assert 2 == sum(f"a secret goes into parameter '{name}' of secret.bicep" in problem for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("param namespaceName", "param nameSpaceName", "main.bicep has no parameter 'nameSpaceName'"),
        ("param namespaceName", "param nameSpaceName", "main.bicep needs the parameter 'namespaceName'"),
        ("./main.bicep", "./other.bicep", "template not found: './other.bicep'"),
        ("param hybridConnections = [", "param hybridConnections = ", "syntax error"),
    ],
)
def test_planted_fault_in_parameters_is_found(tmp_path, old, new, problem):
    """A wrong parameter, template or bracket in a .bicepparam file is found."""
    shutil.copytree(INFRA, tmp_path / "infra")
    path = tmp_path / "infra" / "main.bicepparam"
    path.write_text(path.read_text().replace(old, new, 1))
    assert [found for found in check_parameters(path) if problem in found], check_parameters(path)


def test_names_are_the_scripts_names():
    """Rules, roles and secrets have the same names in the template and in the scripts."""
    scripts = (INFRA / "lib.sh").read_text() + (INFRA / "create_relay.sh").read_text()
    template = "".join((INFRA / name).read_text() for name in TEMPLATES)
    for name in (
        "agent-listen",
        "client-send",
        "26e0b698-aa6d-4085-9386-aadae190014d",
        "26baccc8-eea7-41f1-98f4-1762cc7f685d",
        "4633458b-17de-408a-b874-0445c86b69e6",
        "relay-debug connection string",
    ):
        assert name in scripts
        assert name in template


def test_script_gives_parameters_that_the_template_has(azure, names):
    """The parameters file of --bicep fits main.bicep and its types."""
    principal = "11111111-2222-3333-4444-555555555555"
    options = ("--bicep", "--agent-principal", principal, "--client-principal", f"{principal}:Group")
    assert azure.run("create_relay.sh", *names, *options).code == 0
    (given,) = azure.load()["deployments"]
    declared = parameters_of(INFRA / "main.bicep")
    assert given.keys() <= declared.keys()
    assert {name for name, required in declared.items() if required} <= given.keys()
    assert given["hybridConnections"] == [
        {
            "name": "alice",
            "secretPrefix": "relay-alice",
            "agentPrincipals": [{"id": principal, "type": "ServicePrincipal"}],
            "clientPrincipals": [{"id": principal, "type": "Group"}],
        }
    ]


@pytest.mark.skipif(not shutil.which("bicep"), reason="no bicep compiler on the PATH")
@pytest.mark.parametrize("name", [*TEMPLATES, "main.bicepparam"])
def test_bicep_build(name):
    """The real compiler and its linter accept the file without a warning."""
    command = "build-params" if Path(name).suffix == ".bicepparam" else "build"
    done = subprocess.run(["bicep", command, INFRA / name, "--stdout"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
