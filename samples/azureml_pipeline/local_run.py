"""The pipeline's steps as processes of this machine: `submit.py --local`.

As Azure ML does, it takes the REST body, fills inputs and outputs into each step's command, copies the step's code into
a folder of its own and runs the command there: for PyTorch once per rank, with the variables that tell each its place;
for a parallel step under a driver, of which `parallel_driver.py` is a stand-in. A debug run brings its own relay and
relay-client, so the debugger takes the same way as it would through Azure.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from relay_agent.pipeline import Step, read_steps

HERE = Path(__file__).resolve().parent
START_TIMEOUT = 30.0
"""Seconds for the relay or relay-client to start; each takes one or two."""
END_TIMEOUT = 5.0
"""Seconds a program gets to end when it is asked to."""

OTHER_STEP = re.compile(r"\$\{\{parent\.jobs\.(\w+)\.outputs\.(\w+)\}\}")


def run_locally(body: dict, connection_name: str | None) -> int:
    """Run all steps, through a relay with this hybrid connection in a debug run, and return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):  # so that what was started is ended
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    steps = read_steps(body)
    with tempfile.TemporaryDirectory(prefix="pipeline-") as name, contextlib.ExitStack() as running:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RELAY_")}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        if connection_name:
            environment |= start_relay(folder, connection_name, steps, environment, running)
            print(f"Open {HERE} in VS Code; its .vscode/launch.json needs this:\n{launch_json(steps)}", flush=True)
        for step in steps:
            if step.processes_per_node > 1 and importlib.util.find_spec("torch") is None:
                print(f"--- {step.name}: skipped, because torch is not installed", flush=True)
                continue
            hint = f", debugger port {step.ports[0]}" if connection_name else ""
            print(f"--- {step.name}{hint}", flush=True)
            status = run_step(step, folder, environment)
            if status:
                print(f"--- {step.name} ended with status {status}", file=sys.stderr, flush=True)
                return 1
        print("--- all done", flush=True)
    return 0


def launch_json(steps: list[Step]) -> str:
    """Return what an editor needs to attach to each step, and to all of them with one F5."""
    configurations = [
        {
            "name": f"{step.name} ({step.ports[0]})",
            "type": "debugpy",
            "request": "attach",
            "connect": {"host": "127.0.0.1", "port": step.ports[0]},
            "pathMappings": [{"localRoot": "${workspaceFolder}/steps", "remoteRoot": "."}],
            "justMyCode": False,
        }
        for step in steps
    ]
    names = [configuration["name"] for configuration in configurations]
    compound = {"name": "all steps", "configurations": names}
    return json.dumps({"version": "0.2.0", "configurations": configurations, "compounds": [compound]}, indent=4)


def run_step(step: Step, folder: Path, environment: Mapping[str, str]) -> int:
    """Run one step to its end, and return its exit status."""
    code = folder / step.name / "code"
    shutil.copytree(step.settings.get("code") or step.settings["task"]["code"], code)
    command = command_of(step, folder)
    variables = step.settings.get("environment_variables") or {}
    with contextlib.ExitStack() as running:
        processes = [
            running.enter_context(started(["bash", "-c", command], cwd=code, env={**environment, **variables, **place}))
            for place in places_of(step)
        ]
        while True:
            statuses = [process.poll() for process in processes]
            if any(statuses):
                return next(status for status in statuses if status)
            if all(status == 0 for status in statuses):
                return 0
            time.sleep(0.05)


def command_of(step: Step, folder: Path) -> str:
    """Return the command line that Azure ML would run, with folders of this machine."""
    outputs = {name: folder / step.name / name for name in step.outputs}
    for name, path in outputs.items():
        if step.outputs[name]["type"] == "uri_folder":
            path.mkdir()
    inputs = {name: OTHER_STEP.sub(rf"{folder}/\1/\2", value) for name, value in step.values.items()}
    arguments = step.expand(inputs, {name: str(path) for name, path in outputs.items()})
    if not step.is_parallel:
        return arguments
    task = step.settings["task"]

    def reference(text: str) -> str:
        kind, name = text.strip("${}").split(".")
        return inputs[name] if kind == "inputs" else str(outputs[name])

    return " ".join([
        f"python {HERE / 'parallel_driver.py'} --entry-script {task['entry_script']}",
        f"--input-data {reference(step.settings['input_data'])} --mini-batch-size {step.settings['mini_batch_size']}",
        f"--append-row-to {reference(task['append_row_to'])} {arguments}",
    ])  # fmt: skip


def places_of(step: Step) -> list[dict[str, str]]:
    """Return the variables that tell each process of a step its place among the others."""
    if step.is_parallel:
        return [{"AZ_BATCH_IS_CURRENT_NODE_MASTER": "true"}]
    if step.processes_per_node == 1:
        return [{}]
    everywhere = {
        "WORLD_SIZE": str(step.nodes * step.processes_per_node),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [
        everywhere
        | {"NODE_RANK": str(node), "LOCAL_RANK": str(local), "RANK": str(node * step.processes_per_node + local)}
        for node in range(step.nodes)
        for local in range(step.processes_per_node)
    ]


def start_relay(
    folder: Path, name: str, steps: list[Step], environment: Mapping[str, str], running: contextlib.ExitStack
) -> dict[str, str]:
    """Start a relay with one hybrid connection and relay-client, and return what the steps need to find the relay."""
    files, ready, log = folder / "relay", folder / "ready.json", folder / "programs.log"
    relay = [sys.executable, "-m", "relay_server"]
    arguments = ["init", str(files), "--hc", name, "--port", str(free_port())]
    subprocess.run([*relay, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)
    serve = [*relay, "serve", "--config", str(files / "relay.toml"), "--ready-file", str(ready)]
    process = running.enter_context(started(serve, cwd=folder, env=environment, log=log))
    wait_until(ready.exists, process, log)
    said = json.loads(ready.read_text())

    client = [sys.executable, "-m", "relay_client", "--hc", name, "--ca-file", said["ca_file"]]
    client += ["--connection-string-file", str(files / f"{name}.client.connection")]
    client += ["--ports", ",".join(str(step.ports[0]) for step in steps)]
    process = running.enter_context(started(client, cwd=folder, env=environment, log=log))
    wait_until(lambda: "relay-client: ready" in log.read_text(), process, log)
    return {
        "RELAY_CONNECTION_STRING_FILE": str(files / f"{name}.agent.connection"),
        "RELAY_CA_FILE": said["ca_file"],
    }


@contextlib.contextmanager
def started(
    command: list[str], *, cwd: Path, env: Mapping[str, str], log: Path | None = None
) -> Iterator[subprocess.Popen]:
    """Start a program in a process group of its own, and end the whole group at the end of the block."""
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        for insist in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, insist)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_TIMEOUT)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen, log: Path) -> None:
    """Return when the program is ready; end with what it printed if it never will be."""
    deadline = time.monotonic() + START_TIMEOUT
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(log.read_text())
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
