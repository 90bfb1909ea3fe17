"""Facts about the code blocks of README, guides and samples: each is run as printed, or listed with the reason why not.

A block is named by its first line. What is replaced is only what other tests use at the same time, such as ports.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from relay_client.dap import DapClient
from relay_client.user_directory import DIRECTORY_VARIABLE
from tests.samples.kit import ROOT, Running, breakpoint_hit, environment, free_ports, needs_sdk, needs_torch, running
from tests.support.jobs.running import access, running_client, running_ranks
from tests.support.machine import programs
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

BLOCK = re.compile(r"^( *)```(sh|console|python)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

SOMEWHERE_ELSE = {
    "README.md": {
        "make demo": "test_demo.py",
        "make demo DEMO=--chaos": "test_demo.py",
        "python3 -m venv": "test_from_a_script_to_a_breakpoint",
        "import relay_agent": "test_from_a_script_to_a_breakpoint",
        "export RELAY_CONNECTION_STRING_FILE": "test_from_a_script_to_a_breakpoint",
        ". ~/relay-env": "test_from_a_script_to_a_breakpoint",
        "infra/create_relay.sh": "test_from_nothing_to_a_breakpoint",
    },
    "docs/guides/before-and-now.md": {"pip wheel": "test_the_wheel"},
    "docs/guides/installing.md": {"pipx install '": "test_installing.py", 'pipx install "': "test_installing.py"},
    "docs/guides/inner-loop.md": {"python samples/azureml_pipeline": "test_without_a_subscription"},
    "docs/guides/tensorboard.md": {"pip install": "test_tensorboard_users.py"},
    "docs/guides/azure.md": {
        "az login": "test_from_nothing_to_a_breakpoint",
        "az provider": "test_the_azure_side",
        "pip install": "test_from_nothing_to_a_breakpoint",
        "infra/create_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --entra": (
            "test_from_nothing_to_a_breakpoint"
        ),
        "cd samples/azureml_pipeline": "test_from_nothing_to_a_breakpoint",
        "python samples/azureml_pipeline": "test_without_a_subscription",
        "infra/delete_relay.sh": "test_from_nothing_to_a_breakpoint",
    },
    "docs/reference/credentials.md": {"relay-client --namespace": "test_credentials.py"},
    "infra/README.md": {"$ az keyvault": "test_scripts.py"},
    "samples/azureml_endpoint/README.md": {
        "python deploy.py endpoint": "test_the_endpoint_first",
        "relay-client": "test_microsofts_inference_server",
        "RELAY_CONNECTION_STRING": "test_a_local_deployment",
        "pip install": "test_microsofts_inference_server",
    },
    "docs/concepts/watch.md": {"import time": "test_program_that_prints_the_cost"},
    "docs/guides/watch.md": {"relay-client watch": "test_condition"},
    "samples/azureml_jobs/README.md": {"python distributed.py": "test_the_ports_of_ranks"},
    "samples/azureml_pipeline/README.md": {
        "pip install": "test_without_a_subscription",
        "python submit.py": "test_submission",
        "from relay_agent.azureml": "test_azureml.py",
    },
    "samples/container/README.md": {"pip install": "test_container.py", "docker run": "test_container.py"},
    "samples/crash/README.md": {
        "pip install": "test_crash.py", "relay-client": "test_crash.py", "relay-agent": "test_crash.py"
    },
    "samples/distributed/README.md": {
        "pip install": "test_distributed.py",
        "relay-agent": "test_distributed.py",
        "relay-client --hc myhc --all-ranks": "test_distributed.py",
        "relay-client --hc myhc wait": "test_distributed.py",
        "relay_agent.add_debug_arguments": "test_distributed.py",
        "torchrun": "test_distributed.py",
    },
    "samples/hybrid_connections/README.md": {
        "pip install": "test_hybrid_connections.py",
        "export RELAY_CA_FILE=relay/tls/ca.pem RELAY_LISTEN": "test_hybrid_connections.py",
        "export RELAY_CA_FILE=relay/tls/ca.pem RELAY_SEND": "test_hybrid_connections.py",
    },
    "samples/kubernetes/README.md": {"az keyvault": "test_kubernetes.py"},
    "samples/openpai/README.md": {"DEBUG_PORT_NAME": "test_debug_a_task"},
    "samples/plain_python/README.md": {
        "relay_agent.add_debug_arguments": "test_demo.py", "relay-client demo": "test_demo.py"
    },
    "samples/relay_server/README.md": {"relay-server init": "test_relay_server.py"},
    "samples/slurm/README.md": {"sbatch": "test_slurm.py"},
}  # fmt: skip
"""The test, or the file of tests, that runs a block, or each of its commands for itself."""

NO_AZURE = "no Azure subscription; the `ml` extension of az cannot be installed here"
NO_CLUSTER = "no cluster here: neither oc nor kubectl"
INSTALLS = "would install packages into the environment of the tests"
NOT_RUN = {
    "docs/guides/azure.md": {
        "infra/create_relay.sh -g debug-rg -n contoso-debug --hc alice --nodes": "continues a shell of the first steps",
        "az resource update": "no simulated Azure has clusters",
        "az keyvault show": "prints a property of a real vault",
        "az keyvault set-policy": "needs variables of the first steps, and a vault with access policies",
        "workspace=": NO_AZURE,
    },
    "docs/guides/inner-loop.md": {"az ml": NO_AZURE},
    "docs/guides/installing.md": {"python3 -m venv": INSTALLS, "pip wheel": INSTALLS},
    "docs/guides/mcp.md": {"pip install": INSTALLS},
    "docs/guides/remove.md": {
        "code --uninstall-extension": "tests/vscode installs the extension in VS Codes of its own"
    },
    "docs/guides/slurm.md": {
        "#!/bin/bash": "no srun here; test_slurm.py runs the script of the sample with a stand-in"
    },
    "docs/reference/credentials.md": {"KEY_VAULT_URL": "not a command: a variable and an argument"},
    "infra/README.md": {"$ az deployment": "the bicep CLI cannot be installed here"},
    "samples/container/README.md": {
        "python ../shared": "no Docker here; test_container.py runs what the image runs",
        "oc create": NO_CLUSTER,
        "oc set": NO_CLUSTER,
        "oc exec": NO_CLUSTER,
    },
    "samples/relay_server/README.md": {
        "python3 -m venv /opt": "creates a system user and a service",
        "kubectl": NO_CLUSTER,
    },
}
"""Why a block is not run here."""

HERE = {
    "README.md": ["relay-agent run"],
    "docs/decisions/0001-the-agent-is-a-process-of-its-own.md": ["python - <<"],
    "docs/decisions/0014-separate-engines-for-one-and-all-ranks.md": ["import timeit"],
    "docs/decisions/0017-attached-jobs-are-traced.md": ["import sys"],
    "docs/guides/all-ranks.md": ["relay-client --hc myhc --all-ranks"],
    "docs/guides/hang.md": ["relay-client --hc myhc hang"],
    "docs/guides/ranks.md": ["relay-agent run"],
    "docs/guides/remove.md": ["relay-client init"],
    "docs/guides/relay-server.md": ["pip install"],
    "docs/guides/tensorboard.md": ["relay-agent run"],
    "docs/guides/values.md": ["import relay_agent"],
    "docs/guides/vscode.md": ["relay-client init vscode"],
    "docs/library.md": ["import asyncio", "from relay_core.net import HttpRequest", "import aiohttp"],
    "docs/reference/control-socket.md": ["relay-client status"],
    "docs/troubleshooting.md": ["relay-client doctor"],
    "samples/azureml_jobs/README.md": ["pip install"],
    "samples/plain_python/README.md": [
        "export RELAY_CONNECTION_STRING_FILE=~/listen.txt",
        "relay-client --hc myhc",
    ],
}
"""The blocks that the tests below run."""


def pages() -> list[str]:
    """Return the pages for users."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "README.md", "docs/*.md", "samples/*.md", "infra/*.md"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in found if (ROOT / name).is_file()]


def blocks(page: str) -> list[str]:
    """Return the code blocks of a page that are commands or Python, without their indentation."""
    found = BLOCK.findall((ROOT / page).read_text())
    return ["".join(line.removeprefix(indent) for line in text.splitlines(True)) for indent, _, text in found]


def block(page: str, start: str) -> str:
    """Return the block of a page whose beginning is `start`."""
    (found,) = [text for text in blocks(page) if text.startswith(start)]
    return found


def lines(page: str, start: str) -> list[str]:
    """Return the commands of a block, without what installs packages."""
    text = block(page, start).replace("\\\n", "")
    commands = [line.partition("  #")[0].strip() for line in text.splitlines()]
    return [line for line in commands if line and not line.startswith(("#", "pip install"))]


@pytest.mark.parametrize("page", pages())
def test_each_block_is_run_or_has_a_reason(page: str) -> None:
    """Each block is in one of the lists above, and each entry of a list is the beginning of one block."""
    found = blocks(page)
    listed = [*SOMEWHERE_ELSE.get(page, {}), *NOT_RUN.get(page, {}), *HERE.get(page, [])]
    longest = {text: max((each for each in listed if text.startswith(each)), key=len, default="") for text in found}
    assert [] == [text for text, start in longest.items() if not start], "add these blocks to a list"
    assert sorted(set(listed)) == sorted(longest.values())


def test_the_tests_of_the_lists_exist() -> None:
    """Each test that is named as running a block is there."""
    files = [*(ROOT / "tests").rglob("test_*.py")]
    known = {path.name for path in files} | set(re.findall(r"def (test_\w+)", "".join(map(Path.read_text, files))))
    assert set() == {test for page in SOMEWHERE_ELSE.values() for test in page.values()} - known


class Stage(NamedTuple):
    """A relay, the folder of a user who may use it, and ports for the numbers on the pages."""

    relay: LocalRelay
    folder: Path
    first: int

    def shell(
        self, text: str, rule: str = "send", cwd: Path | None = None, **variables: str
    ) -> contextlib.AbstractAsyncContextManager[Running]:
        """Run commands as printed, with free ports in place of 5600 to 5699."""
        command = re.sub(r"\b56(\d\d)\b", lambda number: str(self.first + int(number[1])), text)
        clients = {DIRECTORY_VARIABLE: programs.environment()[DIRECTORY_VARIABLE]}
        settings = access(self.relay, self.folder, rule, HOME=str(self.folder), **clients, **variables)
        return running("bash", "-euc", command, cwd=cwd or self.folder, env=environment(**settings))

    async def output(
        self, text: str, rule: str = "send", *, statuses: frozenset[int] = frozenset({0}), cwd: Path | None = None
    ) -> str:
        """Run commands to their end, and return what they print."""
        async with self.shell(text, rule, cwd) as shell:
            assert await shell.finish() in statuses, f"{text}: {shell.output}"
            return shell.output


@pytest.fixture
def stage(relay: LocalRelay, tmp_path: Path) -> Stage:
    return Stage(relay, tmp_path, free_ports(100))


IDLE = """
import os, time
from pathlib import Path
Path(f"ready-{os.environ.get('RELAY_RANK', '0')}").touch()
while not Path("stop").exists():
    time.sleep(0.05)
"""


@contextlib.asynccontextmanager
async def four_ranks(stage: Stage) -> AsyncIterator[None]:
    """Run a job with four ranks that do nothing."""
    script = stage.folder / "idle.py"
    script.write_text(IDLE.replace("ready-", f"{stage.folder}/ready-").replace("stop", f"{stage.folder}/stop"))
    async with running_ranks(stage.relay, script, 4, "--port", str(stage.first + 78)):
        yield


@pytest.mark.e2e
@needs_torch
@pytest.mark.parametrize("page", ["README.md", "docs/guides/ranks.md"])
async def test_every_rank(stage: Stage, page: str) -> None:
    """Four ranks of torchrun run under relay-agent; relay-client opens a port for each, and one for all of them."""
    (stage.folder / "train.py").write_text("import os\nprint('trained', os.environ['RANK'], flush=True)\n")
    job, *clients = lines(page, "relay-agent run")
    for client in clients:
        async with stage.shell(client) as shell:
            await shell.line("relay-client: ready on ")
    variables = {"RELAY_DEBUG_RANKS": "none", "PET_MASTER_PORT": str(free_port())}
    async with stage.shell(job, "listen", **variables) as shell:
        assert 0 == await shell.finish(), shell.output
        assert {f"trained {rank}" for rank in range(4)} <= {*shell.output.splitlines()}, shell.output


@pytest.mark.e2e
@pytest.mark.parametrize("number", [0, 1])
async def test_one_port_for_all_ranks(stage: Stage, number: int) -> None:
    """relay-client opens the port of all ranks, and those of single ranks."""
    async with stage.shell(lines("docs/guides/all-ranks.md", "relay-client")[number]) as client:
        await client.line("relay-client: ready on ")


@pytest.mark.e2e
async def test_hang_and_doctor(stage: Stage) -> None:
    """In a job that does not hang, `hang` ends with 0; both doctors find nothing wrong."""
    async with four_ranks(stage):
        (hang,) = lines("docs/guides/hang.md", "relay-client")
        assert "error" not in await stage.output(hang)
        for_client, for_agent = lines("docs/troubleshooting.md", "relay-client doctor")
        assert " fail " not in await stage.output(for_client)
    assert " fail " not in await stage.output(for_agent, "listen")


@pytest.mark.e2e
async def test_a_relay_of_ones_own(stage: Stage) -> None:
    """`init` writes what `serve` reads."""
    init, serve = lines("docs/guides/relay-server.md", "pip install")
    await stage.output(f"{init} --port {free_port()}")
    async with stage.shell(serve) as server:
        await server.line("relay-server: ready")


@pytest.mark.e2e
async def test_jobs_with_event_files(stage: Stage) -> None:
    """Both ways to offer event files run the script."""
    (stage.folder / "train.py").write_text(
        "import relay_agent\nrelay_agent.start_remote_debugging_from_args()\nprint('trained')\n"
    )
    under_agent, by_itself = lines("docs/guides/tensorboard.md", "relay-agent run")
    for command in (under_agent, f"{by_itself} --debug-wait 0"):
        assert "trained\n" in await stage.output(command.replace("alice", "myhc"), "listen")


@pytest.mark.e2e
async def test_configurations_of_vscode(stage: Stage) -> None:
    """The first command shows the configurations, the second one writes them, and a third one removes them."""
    show, write = lines("docs/guides/vscode.md", "relay-client init")
    assert "Relay: rank 3" in await stage.output(show)
    assert not (stage.folder / ".vscode").exists()
    await stage.output(write)
    assert "Relay: rank 3" in (stage.folder / ".vscode" / "launch.json").read_text()
    (remove,) = lines("docs/guides/remove.md", "relay-client init")
    await stage.output(remove)
    assert not (stage.folder / ".vscode").exists()


@pytest.mark.e2e
async def test_commands_of_the_control_socket(stage: Stage) -> None:
    """Each command has its effect on the relay-client that is running; the last one ends it."""
    status, attach, release, group, logs, events, stop = lines(
        "docs/reference/control-socket.md", "relay-client status"
    )
    ports = ["--ports", f"{stage.first + 78}-{stage.first + 81}", "--all-ranks", str(stage.first)]
    async with four_ranks(stage), running_client(stage.relay, stage.folder, *ports) as client:
        await client.line(": connected, round trip")
        assert f"127.0.0.1:{stage.first + 81}" in await stage.output(status)
        await stage.output(attach)
        async with await DapClient.connect("127.0.0.1", stage.first + 81, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE)
            await stage.output(release)
        async with await DapClient.connect("127.0.0.1", stage.first, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE)
            await stage.output(group.replace("0,3-5", "0,3"))
        for command in (logs, events):
            async with stage.shell(command) as shell:
                if command == logs:
                    await shell.line("rank 3 on ")
        await stage.output(stop)
        assert 0 == (await client.finish()).status


LIBRARY = """
import os
from relay_core.errors import RelayDebugError

async def until_it_works(listening, use):
    task = asyncio.ensure_future(listening)
    while True:
        try:
            result = await use()
            if result is not False:
                break
        except RelayDebugError:
            pass
        await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

async def posted():
    return await post(os.environ["SEND"], b"hello") == b"hello" or False

async def main():
    await until_it_works(listen(os.environ["LISTEN"]), lambda: send(os.environ["SEND"]))
    await until_it_works(serve(os.environ["LISTEN"]), posted)
    print("done")

asyncio.run(main())
"""


@pytest.mark.e2e
async def test_the_library(stage: Stage) -> None:
    """Listener, sender and HTTP handler of the page, as one program, find each other through a relay."""
    program = stage.folder / "library.py"
    program.write_text("\n".join([*blocks("docs/library.md"), LIBRARY]))
    texts = {"LISTEN": stage.relay.connection_string("listen"), "SEND": stage.relay.connection_string("send")}
    async with stage.shell(f"{sys.executable} library.py", **texts) as shell:
        assert 0 == await shell.finish(), shell.output
    assert ["b'hello'", "done"] == shell.output.splitlines()[-2:]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("page", "start"),
    [
        ("docs/decisions/0001-the-agent-is-a-process-of-its-own.md", "python - <<"),
        ("docs/decisions/0014-separate-engines-for-one-and-all-ranks.md", "import timeit"),
        ("docs/decisions/0017-attached-jobs-are-traced.md", "import sys"),
        ("docs/guides/values.md", "import relay_agent"),
    ],
)
async def test_programs(stage: Stage, page: str, start: str) -> None:
    """Measurements print their figures, and the example for values raises nothing."""
    text = block(page, start)
    assert "Error" not in await stage.output(text if start.startswith("python") else f"python - <<'END'\n{text}END")


@needs_sdk
@pytest.mark.e2e
async def test_dry_runs(stage: Stage) -> None:
    """The first dry run prints JSON, with a wheel built from this checkout; `test_the_job` has the others."""
    sample = ROOT / "samples" / "azureml_jobs"
    command = lines("samples/azureml_jobs/README.md", "pip install")[0]
    shown = await stage.output(command, cwd=sample)
    assert "any_image" == json.loads(shown)["properties"]["displayName"]


@pytest.mark.e2e
async def test_plain_python(stage: Stage) -> None:
    """With the connection strings in two files, the sample's script and relay-client run as printed."""
    for rule in ("listen", "send"):
        file = stage.folder / f"{rule}.txt"
        file.touch(mode=0o600)
        file.write_text(stage.relay.connection_string(rule))
    page, sample = "samples/plain_python/README.md", ROOT / "samples" / "plain_python"
    job, client = block(page, "export RELAY_CONNECTION_STRING_FILE"), block(page, "relay-client --hc myhc")
    async with stage.shell(client) as shell, stage.shell(job, cwd=sample) as program:
        await shell.line("relay-client: ready on ")
        async with breakpoint_hit(stage.first + 78, sample / "train.py", "score = sum(") as stop:
            assert "forward" == await stop.function()
        assert 0 == await program.finish()
