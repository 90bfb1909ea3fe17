"""Facts about samples/azureml_endpoint: it serves as ever, and a debugger can attach while it does."""

import contextlib
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.samples.kit import (
    ROOT,
    SAMPLES,
    Running,
    agent_settings,
    attached,
    client_of,
    environment,
    free_ports,
    needs_sdk,
    running,
    wheel,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

SAMPLE = SAMPLES / "azureml_endpoint"
SCORE = SAMPLE / "code" / "score.py"
MODEL = {"AZUREML_MODEL_DIR": str(SAMPLE / "model")}
REQUEST = {"points": [[0.1, 0.1], [0.9, 0.9]]}
ANSWER = [True, False]

SERVER = """
import sys, score
score.init()
print("serving", "debugpy" in sys.modules, flush=True)
for line in sys.stdin:
    print("answer", score.run(line), flush=True)
"""


@contextlib.asynccontextmanager
async def serving(**variables: str) -> AsyncIterator[Running]:
    """Run the scoring script under the least of servers: it calls `init`, and `run` for each line of its stdin."""
    env = environment(**MODEL, **variables)
    async with running(sys.executable, "-c", SERVER, cwd=SCORE.parent, env=env) as server:
        yield server


def ask(server: Running) -> None:
    assert server.process.stdin is not None
    server.process.stdin.write(json.dumps(REQUEST).encode() + b"\n")


def debug_variables(relay: LocalRelay, port: int) -> dict[str, str]:
    names = {"RELAY_DEBUG": "true", "RELAY_DEBUG_CONNECTION_NAME": "myhc", "RELAY_DEBUG_PORT": str(port)}
    return agent_settings(relay) | names


async def test_ordinary_endpoint():
    """Without RELAY_DEBUG the endpoint serves, and debugpy is not even imported."""
    async with serving() as server:
        assert "serving False" == await server.line("serving")
        ask(server)
        assert f"answer {ANSWER}" == await server.line("answer")


@pytest.mark.parametrize(
    "variables",
    [{}, {"RELAY_DEBUG_CONNECTION_NAME": "myhc"}, {"RELAY_DEBUG_PORT": "none of yours"}],
    ids=["no name", "no connection string", "no port"],
)
async def test_bad_settings_do_not_hurt(variables):
    """An endpoint whose debugging is set up badly logs the reason and serves."""
    async with serving(RELAY_DEBUG="true", **variables) as server:
        await server.line("serving")
        ask(server)
        assert f"answer {ANSWER}" == await server.line("answer")
        assert "relay-agent: " in server.output


@pytest.mark.e2e
async def test_attach_while_it_serves(relay):
    """The endpoint serves without debugpy, stops at a breakpoint of one that attaches, and serves on after it."""
    port = free_port()
    async with client_of(relay, port), serving(**debug_variables(relay, port)) as server:
        assert "serving False" == await server.line("serving")
        ask(server)
        assert f"answer {ANSWER}" == await server.line("answer")
        async with attached(port, SCORE, "return score > 0") as debugger:
            ask(server)
            stop = await debugger.hit()
            assert ("is_inside", "True") == (await stop.function(), await stop.value("score > 4"))
        assert f"answer {ANSWER}" == await server.line("answer")


INFERENCE_SERVER = shutil.which("azmlinfsrv") or shutil.which("azmlinfsrv", path=ROOT / ".inference-server" / "bin")
POST = """
import sys, urllib.request
url, body, *headers = sys.argv[1:]
named = dict(header.split(": ") for header in headers)
print(urllib.request.urlopen(urllib.request.Request(url, body.encode(), named)).read().decode())
"""


def curl_of_readme(port: int) -> list[str]:
    """Return URL, body and headers of the request in the README, for an endpoint on a port."""
    (line,) = re.findall(r"^curl (.*?) +# after F5$", (SAMPLE / "README.md").read_text(), re.MULTILINE)
    header, named, data, body, url = shlex.split(line)
    assert ("-H", "-d", "http://127.0.0.1:5001/score") == (header, data, url)
    return [url.replace("5001", str(port)), body, named]


@pytest.mark.e2e
@pytest.mark.skipif(
    INFERENCE_SERVER is None,
    reason="azmlinfsrv is not installed; make extras does",
)
async def test_microsofts_inference_server(relay):
    """Under Azure ML's own server a request stops at a breakpoint, and is answered after that."""
    port, http = free_port(), free_ports(2)
    script = ["--entry_script", "score.py", "--model_dir", "../model"]
    script += ["--port", str(http), "--health_port", str(http + 1)]
    env = environment(**debug_variables(relay, port), WORKER_COUNT="1", WORKER_TIMEOUT="3600")
    async with (
        client_of(relay, port),
        running(str(INFERENCE_SERVER), *script, cwd=SCORE.parent, env=env) as server,
        contextlib.AsyncExitStack() as calls,
    ):
        await server.line(f"a debugger can attach on port {port}")
        async with attached(port, SCORE, "return score > 0", remote_root=SCORE.parent) as debugger:
            post = (sys.executable, "-c", POST, *curl_of_readme(http))
            caller = await calls.enter_async_context(running(*post, cwd=SAMPLE, env=env))
            stop = await debugger.hit()
            assert "0.1" == await stop.value("x")
        assert 0 == await caller.finish()
        assert ANSWER[:1] == json.loads(caller.output)


def deployment(*arguments: str) -> dict:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    done = subprocess.run(
        [sys.executable, "deploy.py", "deployment", "--dry-run", "--wheel", str(wheel()), *arguments],
        cwd=SAMPLE, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=True,
    )  # fmt: skip
    return yaml.safe_load(done.stdout)


@needs_sdk
def test_ordinary_deployment():
    """An ordinary deployment has nothing of debugging in it."""
    made = deployment()
    assert "RELAY" not in json.dumps(made)
    assert "liveness_probe" not in made
    assert "score.py" == made["code_configuration"]["scoring_script"]
    assert (Path(made["code_configuration"]["code"]) / "score.py").is_file()


@needs_sdk
def test_debug_deployment():
    """A debug deployment has one worker, and neither server nor probe ends it during an hour at a breakpoint."""
    secret = ["--debug-relay-connection-string-secret", "s", "--key-vault-url", "https://v.vault.azure.net/"]
    made = deployment("--is-debug", "true", "--debug-relay-connection-name", "myhc", *secret)
    assert {
        "RELAY_DEBUG": "true",
        "RELAY_DEBUG_CONNECTION_NAME": "myhc",
        "RELAY_DEBUG_PORT": "5678",
        "RELAY_DEBUG_CONNECTION_STRING_SECRET": "s",
        "KEY_VAULT_URL": "https://v.vault.azure.net/",
        "WORKER_COUNT": "1",
        "WORKER_TIMEOUT": "3600",
    } == made["environment_variables"]
    assert 3600 <= made["liveness_probe"]["period"] * made["liveness_probe"]["failure_threshold"]
    assert {"request_timeout_ms": 180000, "max_concurrent_requests_per_instance": 1} == made["request_settings"]
    assert 1 == made["instance_count"]


DEPLOY = """
import sys
from types import SimpleNamespace
from azure.core.exceptions import ResourceNotFoundError
import deploy

class Client:
    subscription_id, resource_group_name, workspace_name = "sub", "ml-rg", "contoso-ml"
    known = {name: SimpleNamespace(identity=SimpleNamespace(principal_id="22222222-3333"), scoring_uri="https://score")
             for name in sys.argv.pop(1).split()}

    def get(self, name, local=False):
        if local:
            return SimpleNamespace(scoring_uri="http://localhost:32768/score")
        if name not in self.known:
            raise ResourceNotFoundError(name)
        return self.known[name]

    def create_endpoint(self, endpoint, local=False):
        print("create local endpoint" if local else "create endpoint", endpoint.name, file=sys.stderr)
        self.known[endpoint.name] = SimpleNamespace(identity=SimpleNamespace(principal_id="22222222-3333"))
        return SimpleNamespace(result=lambda: self.known[endpoint.name])

    def create_deployment(self, deployment, local=False):
        if local:
            print("create local deployment", sorted(deployment.environment_variables or {}), file=sys.stderr)
            return None
        files = sorted(path.name for path in deployment.environment.build.path.iterdir())
        print("create deployment", deployment.name, deployment.endpoint_name, *files, file=sys.stderr)
        return SimpleNamespace(result=lambda: deployment)

    @property
    def online_endpoints(self):
        return SimpleNamespace(get=self.get, begin_create_or_update=self.create_endpoint)

    @property
    def online_deployments(self):
        return SimpleNamespace(begin_create_or_update=self.create_deployment)

deploy.connect = Client
sys.exit(deploy.main())
"""
NAME = "circle-" + hashlib.sha256(b"sub/ml-rg/contoso-ml").hexdigest()[:8]


def deploy(known: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run deploy.py in a workspace that has these endpoints."""
    return subprocess.run(
        [sys.executable, "-c", DEPLOY, known, *arguments],
        cwd=SAMPLE, env=environment(**variables), capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


@needs_sdk
def test_the_endpoint_first():
    """`deploy.py endpoint` makes the endpoint alone, with a name of this workspace, and prints its identity."""
    done = deploy("", "endpoint")
    assert (0, f"endpoint: {NAME}\nidentity: 22222222-3333\n") == (done.returncode, done.stdout)
    assert [f"create endpoint {NAME}"] == done.stderr.splitlines()


@needs_sdk
def test_an_endpoint_that_is_there():
    """`deploy.py endpoint` of an endpoint that is there changes nothing and prints the same."""
    done = deploy(NAME, "endpoint")
    assert (0, f"endpoint: {NAME}\nidentity: 22222222-3333\n", "") == (done.returncode, done.stdout, done.stderr)


@needs_sdk
def test_the_deployment_second():
    """`deploy.py deployment` deploys to the endpoint that is there, with the wheel in the image's build context."""
    done = deploy(NAME, "deployment", "--wheel", str(wheel()))
    assert (0, "https://score\n") == (done.returncode, done.stdout)
    files = " ".join(sorted(["Dockerfile", "relay-debug.txt", "requirements.txt", wheel().name]))
    assert [f"create deployment blue {NAME} {files}"] == done.stderr.splitlines()


@needs_sdk
def test_a_local_deployment() -> None:
    """`--local` runs endpoint and deployment on this machine, with the connection string that it has been given."""
    arguments = ["--wheel", str(wheel()), "--is-debug", "true", "--debug-relay-connection-name", "myhc", "--local"]
    done = deploy("", "deployment", *arguments, RELAY_CONNECTION_STRING="Endpoint=sb://x/")
    assert (0, "http://localhost:32768/score\n") == (done.returncode, done.stdout), done.stderr
    created, deployed = done.stderr.splitlines()
    assert f"create local endpoint {NAME}" == created
    assert deployed.startswith("create local deployment ['RELAY_CONNECTION_STRING', 'RELAY_DEBUG'")


@needs_sdk
def test_two_instances() -> None:
    """`--instances` sets their number; each has one worker."""
    made = deployment("--is-debug", "true", "--debug-relay-connection-name", "myhc", "--instances", "2")
    assert (2, "1") == (made["instance_count"], made["environment_variables"]["WORKER_COUNT"])


@needs_sdk
def test_a_deployment_without_an_endpoint():
    """A deployment to an endpoint that is not there is refused, with the command that makes it."""
    done = deploy("", "deployment", "--wheel", str(wheel()), "--endpoint", "mine")
    assert (1, "") == (done.returncode, done.stdout)
    assert [
        "deploy.py: error: the workspace has no endpoint 'mine'. hint: run 'python deploy.py endpoint --endpoint mine'"
    ] == done.stderr.splitlines()
