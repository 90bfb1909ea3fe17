"""Facts about samples/azureml_pipeline: what it submits, and what its steps make of that; nothing runs yet."""

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from relay_agent.azureml import DEBUG_ARGUMENTS, Step, find_problems, read_steps
from relay_agent.settings.arguments import parse_step_arguments
from relay_agent.settings.model import DebugSettings
from relay_core.access_settings import AccessSettings
from tests.samples.kit import SAMPLES, environment, load, needs_sdk, needs_torch, wheel
from tests.support.machine.deadline import DEADLINE

SAMPLE = SAMPLES / "azureml_pipeline"
STEPS = SAMPLE / "steps"
DEBUG = ["--is-debug", "true", "--debug-relay-connection-name", "myhc"]

pytestmark = [
    needs_sdk,
    pytest.mark.xdist_group("azureml_pipeline"),  # its fixtures take seconds
]


def python(*arguments: str, cwd: Path = SAMPLE, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def dry_run(*arguments: str) -> dict:
    done = python("submit.py", "--dry-run", "--wheel", str(wheel()), *arguments)
    assert (0, "") == (done.returncode, done.stderr)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ordinary() -> dict:
    """The REST body of an ordinary run."""
    return dry_run()


@pytest.fixture(scope="module")
def debug() -> dict:
    """The REST body of a debug run that takes its connection string from Key Vault."""
    vault = ["--key-vault-url", "https://contoso.vault.azure.net/"]
    return dry_run(*DEBUG, "--debug-relay-connection-string-secret", "relay-myhc-agent", *vault)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def steps_of(body: dict) -> dict[str, Step]:
    return {step.name: step for step in read_steps(body)}


def test_steps(ordinary):
    """The pipeline has a plain command, a parallel component, and PyTorch on 2 nodes with 2 processes each."""
    prepare, featurize, train = read_steps(ordinary)
    assert ["prepare", "featurize", "train"] == [prepare.name, featurize.name, train.name]
    assert [False, True, False] == [step.is_parallel for step in (prepare, featurize, train)]
    assert (2, 2) == (train.nodes, train.processes_per_node)
    distribution = ordinary["properties"]["jobs"]["train"]["distribution"]
    assert {"distribution_type": "PyTorch", "process_count_per_instance": 2} == distribution


def test_arguments(ordinary):
    """Every step gets exactly the four debugging arguments, each with its own port."""
    assert ["is-debug", "debug-relay-connection-name", "debug-port", "debug-relay-connection-string-secret"] == (
        re.findall(r"--([\w-]+)", DEBUG_ARGUMENTS)
    )
    for step in read_steps(ordinary):
        assert step.template.endswith(DEBUG_ARGUMENTS)
        assert {"debug_port", "is_debug"} <= step.inputs.keys()
    assert [5678, 5679, 5680] == [step.ports[0] for step in read_steps(ordinary)]


def test_pipeline_inputs(ordinary, debug):
    """The pipeline's inputs are `is_debug` and the names; absent names are left out."""
    assert {"is_debug": "False"} == values_of(ordinary)
    assert {
        "is_debug": "True",
        "debug_relay_connection_name": "myhc",
        "debug_relay_connection_string_secret": "relay-myhc-agent",
    } == values_of(debug)


def values_of(body: dict) -> dict[str, str]:
    return {name: given["value"] for name, given in body["properties"]["inputs"].items()}


def test_ordinary_run_is_left_alone(ordinary):
    """An ordinary run may reuse results, and keeps the short timeout and the retries of its parallel step."""
    assert "force_rerun" not in ordinary["properties"]["settings"]
    node = ordinary["properties"]["jobs"]["featurize"]
    assert {"max_retries": 2, "timeout": 60} == node["retry_settings"]
    assert 2 == node["max_concurrency_per_instance"]
    assert "timeout" not in node["task"]["program_arguments"]


def test_debug_run_has_patience(debug):
    """A debug run reruns every step, and its parallel step waits a day, does not retry, and is one process per node."""
    assert debug["properties"]["settings"]["force_rerun"] is True
    node = debug["properties"]["jobs"]["featurize"]
    assert {"max_retries": 0, "timeout": 86400} == node["retry_settings"]
    assert 1 == node["max_concurrency_per_instance"]
    for name in ("first_task_creation", "task_overhead", "progress_update"):
        assert f"--{name}_timeout 86400" in node["task"]["program_arguments"]


def test_key_vault(ordinary, debug):
    """The vault's address goes to every step as KEY_VAULT_URL, and only if there is one."""
    for node in debug["properties"]["jobs"].values():
        assert {"KEY_VAULT_URL": "https://contoso.vault.azure.net/"} == node["environment_variables"]
    for node in ordinary["properties"]["jobs"].values():
        assert not node.get("environment_variables")


def test_environment(ordinary):
    """Every step runs in one image, built from the same context."""
    used = [
        step.settings["task"]["environment"] if step.is_parallel else step.settings["environment"]
        for step in read_steps(ordinary)
    ]
    assert 3 == len(used)
    assert [["path"]] * 3 == [list(environment["build"]) for environment in used]
    assert 1 == len({environment["version"] for environment in used})


def test_build_context(ordinary):
    """A dry run lists the files of the image's build context with their hashes, and one of them is the wheel."""
    image = {path.name: sha256(path) for path in (SAMPLE / "image").iterdir()}
    context = ordinary["build_context"]
    assert context.keys() == {*image, "relay-debug.txt", wheel().name}
    assert image.items() <= context.items()
    assert sha256(wheel()) == context[wheel().name]


def test_same_checkout_same_image(ordinary, debug):
    """The version of the environment depends on the files of the context alone, so Azure ML builds the image once."""
    first, second = (read_steps(body)[0].settings["environment"] for body in (ordinary, debug))
    assert first["build"]["path"] != second["build"]["path"]
    assert first["version"] == second["version"]


def test_nothing_that_the_sdk_overlooks(ordinary, debug):
    """Neither run has undeclared inputs, needed optional inputs, bad ports or shared ports."""
    assert [] == find_problems(ordinary)
    assert [] == find_problems(debug)


def test_bad_port_is_not_submitted():
    """A port that the SDK lets pass is refused before anything is sent."""
    done = python("submit.py", "--dry-run", "--wheel", str(wheel()), "--debug-port", "65535")
    assert 1 == done.returncode
    assert "step 'featurize': input 'debug_port' is 65536, but must be from 1024 to 65535" in done.stderr


def test_debug_run_needs_a_hybrid_connection():
    """A debug run without the name of a hybrid connection is a wrong command line."""
    done = python("submit.py", "--dry-run", "--is-debug", "True")
    assert 2 == done.returncode
    assert "a debug run needs --debug-relay-connection-name" in done.stderr


SDK_CHECK = """
import sys
from azure.ai.ml import load_component, load_job
from pipeline import build_pipeline

folder = sys.argv[1]
job = build_pipeline(compute="cluster", is_debug=True, connection_name="myhc")
assert job._validate().passed, job._validate()
for node in job.jobs.values():
    path = f"{folder}/{node.name}.yaml"
    node.component.dump(path)
    assert load_component(path).name == node.name
with open(f"{folder}/job.yaml", "w") as file:
    file.write(job._to_yaml())
loaded = load_job(f"{folder}/job.yaml")
assert loaded._validate().passed, loaded._validate()
print(*loaded.jobs)
"""


def test_sdk_validation(tmp_path):
    """The SDK accepts the pipeline, and the YAML that it makes of the pipeline and of each component."""
    done = python("-c", SDK_CHECK, str(tmp_path))
    assert 0 == done.returncode, done.stderr
    assert "prepare featurize train\n" == done.stdout


SUBMISSION = """
import sys
from types import SimpleNamespace
import submit

class Client:
    workspace_name = "ws"
    workspaces = SimpleNamespace(get=lambda name: SimpleNamespace(key_vault=f"/subscriptions/1/vaults/kv-of-{name}"))

    @property
    def jobs(self):
        return SimpleNamespace(create_or_update=self.create)

    def create(self, job, experiment_name):
        urls = {node.environment_variables["KEY_VAULT_URL"] for node in job.jobs.values()}
        return SimpleNamespace(studio_url=f"{experiment_name} {job.settings.force_rerun} {urls}")

submit.connect = Client
sys.exit(submit.main())
"""


def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-c", SUBMISSION, "--wheel", str(wheel()), *DEBUG, *arguments)


def test_submission():
    """A real submission hands the job to the client, with the workspace's own vault if none is named."""
    done = submit("--debug-relay-connection-string-secret", "s")
    assert (0, "circle True {'https://kv-of-ws.vault.azure.net/'}\n") == (done.returncode, done.stdout)


def test_rights_in_the_vault_of_the_workspace():
    """With the workspace's own vault it prints what the cluster needs there, for roles and for access policies."""
    done = submit("--debug-relay-connection-string-secret", "s")
    assert "own Key Vault, https://kv-of-ws.vault.azure.net/\n" in done.stderr
    assert "Key Vault Secrets User" in done.stderr
    assert (
        "az keyvault set-policy -n kv-of-ws --object-id <identity of the cluster> --secret-permissions get"
        in done.stderr
    )
    assert "az keyvault show -n kv-of-ws --query properties.enableRbacAuthorization" in done.stderr


def test_named_vault():
    """With a vault that the user has named, no advice is printed."""
    vault = "https://contoso-kv.vault.azure.net/"
    done = submit("--debug-relay-connection-string-secret", "s", "--key-vault-url", vault)
    assert (0, f"circle True {{'{vault}'}}\n", "") == (done.returncode, done.stdout, done.stderr)


REACHED = """
import relay_agent, runpy, sys

def reached():
    print("reached", sys.argv[1:], sep="\\n")
    sys.exit()

relay_agent.start_remote_debugging_from_args = reached
script, kind, *sys.argv[1:] = sys.argv[1:]
names = runpy.run_path(script, run_name="__main__" if kind == "main" else "entry_script")
names["init"]()
"""


@pytest.mark.parametrize("is_debug", ["True", "False"])
@pytest.mark.parametrize("name", ["prepare", "featurize", pytest.param("train", marks=needs_torch)])
def test_steps_understand_their_command(ordinary, debug, name, is_debug, tmp_path):
    """What Azure ML makes of a step's command is understood by the step's own parser, with "True" and with "False"."""
    step = steps_of(debug if is_debug == "True" else ordinary)[name]
    words = shlex.split(step.expand(step.values, {output: str(tmp_path / output) for output in step.outputs}))
    assert is_debug == words[words.index("--is-debug") + 1]
    arguments = words if step.is_parallel else words[2:]
    assert step.is_parallel or ["python", f"{name}.py"] == words[:2]
    kind = "init" if step.is_parallel else "main"
    done = python(
        "-c", REACHED, str(STEPS / f"{name}.py"), kind, *arguments, cwd=STEPS, AZ_BATCH_IS_CURRENT_NODE_MASTER="true"
    )
    assert (0, ["reached", str(arguments)]) == (done.returncode, done.stdout.splitlines()), done.stderr
    access = AccessSettings(hc="myhc", connection_string_secret="relay-myhc-agent")
    curves = ("logs/tensorboard",) if name == "train" else ()
    settings = DebugSettings(access=access, port=step.ports[0], event_directories=curves)
    expected = settings if is_debug == "True" else None
    assert expected == parse_step_arguments(arguments)


PLACES = [
    ({"AZ_BATCH_IS_CURRENT_NODE_MASTER": "true"}, True),
    ({"AZ_BATCH_IS_CURRENT_NODE_MASTER": "True"}, True),
    ({"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false"}, False),
    ({"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, False),
    ({"AZ_BATCHAI_TASK_INDEX": "0", "AZUREML_NODE_COUNT": "2"}, True),
    ({"AZ_BATCHAI_TASK_INDEX": "1", "AZUREML_NODE_COUNT": "2"}, False),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, False),
    ({"AZUREML_NODE_COUNT": "1"}, True),
    ({"AZUREML_NODE_COUNT": "2"}, None),
    ({}, None),
]
"""Whether a node is the first one, by its variables."""


@pytest.mark.parametrize(("variables", "expected"), PLACES, ids=str)
def test_only_the_first_node_debugs(variables, expected, monkeypatch):
    """The parallel step knows the first node by any of several variables, and guesses nothing if none identifies it."""
    for name in {name for place, _ in PLACES for name in place}:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected is load(STEPS / "featurize.py").is_first_node()


NO_NODE = """
import relay_agent, runpy, sys

relay_agent.start_remote_debugging_from_args = lambda: print("debugged")
names = runpy.run_path("featurize.py", run_name="entry_script")
names["init"]()
"""


@pytest.mark.parametrize(("is_debug", "lines"), [("True", 1), ("False", 0)])
def test_unknown_node(is_debug, lines, tmp_path):
    """A node that cannot know whether it is the first is not debugged, and logs that in a debug run only."""
    done = python("-c", NO_NODE, "--features", str(tmp_path), "--is-debug", is_debug, cwd=STEPS)
    assert (0, lines) == (done.returncode, len(done.stdout.splitlines())), done.stderr
    assert "debugged\n" not in done.stdout
    assert bool(lines) == ("AZ_BATCH_IS_CURRENT_NODE_MASTER is missing" in done.stdout)


def test_launch_json(ordinary):
    """The launch.json of the sample is what `--local --is-debug true` prints, so its ports are the pipeline's."""
    written = json.loads((SAMPLE / ".vscode" / "launch.json").read_text())
    assert written == json.loads(load(SAMPLE / "local_run.py").launch_json(read_steps(ordinary)))


def test_tensorboard_starts_with_the_job():
    """With `--tensorboard true`, the submission is followed by relay-client, here without a connection string."""
    done = submit("--key-vault-url", "https://contoso-kv.vault.azure.net/", "--tensorboard", "true")
    assert "circle True" in done.stdout
    assert (3, 1) == (done.returncode, done.stderr.count("relay-client: error: ")), done.stderr


@pytest.mark.parametrize("arguments", [("--tensorboard", "true"), (*DEBUG, "--tensorboard", "true", "--local")])
def test_tensorboard_needs_a_debug_run(arguments):
    """Without an agent, nobody serves the files of the running job."""
    done = python("submit.py", *arguments)
    assert (2, True) == (done.returncode, "--tensorboard true requires a debug run on Azure ML" in done.stderr)
