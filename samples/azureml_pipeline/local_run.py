"""Runs the pipeline's steps as processes on this machine, for `submit.py --local`.

Like Azure ML, this module reads the REST body, inserts inputs and outputs into each step's command, copies the step's
code into a separate folder and runs the command there. A PyTorch step runs once per rank, with the environment
variables for that rank. A parallel step runs under a driver; here, `parallel_driver.py` replaces Azure ML's driver. A
debug run starts its own relay and relay-client, so the debugger connects in the same way as through Azure.
"""

import contextlib
import importlib.util
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from relay_agent.azureml import Step, read_steps

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from local_relay import clean_environment, end_in_order, free_port, start_relay, started  # noqa: E402

OTHER_STEP = re.compile(r"\$\{\{parent\.jobs\.(\w+)\.outputs\.(\w+)\}\}")


def run_locally(body: dict, connection_name: str | None) -> int:
    """Run all steps, and return the exit status; a debug run uses a local relay that has this hybrid connection."""
    end_in_order()
    steps = read_steps(body)
    with tempfile.TemporaryDirectory(prefix="pipeline-") as name, contextlib.ExitStack() as running:
        folder = Path(name)
        environment = clean_environment()
        if connection_name:
            ports = ",".join(str(step.ports[0]) for step in steps)
            relay = start_relay(folder, connection_name, ["--ports", ports], environment, running)
            environment |= relay.agent
            print(f"Open {HERE} in VS Code; its .vscode/launch.json needs this:\n{launch_json(steps)}")
            print(f"Or run these commands in another terminal:\n{relay.commands(connection_name)}", flush=True)
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
    """Return a launch.json with a configuration for each step, and one that attaches to all steps."""
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
    """Run one step until it ends, and return its exit status."""
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
    """Return the command line that Azure ML would run, with local folders."""
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
    """Return, for each process of a step, the environment variables that contain its rank."""
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
