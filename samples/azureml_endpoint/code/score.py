"""Scoring script for an online endpoint; a debugger can attach to it at any time.

Azure ML's inference server calls `init` once in each worker and `run` for each request.
"""

import json
import os
from pathlib import Path

import relay_agent

model: dict


def init() -> None:
    """Prepare this worker."""
    global model  # noqa: PLW0603 - the server's interface has no other place for it
    start_remote_debugging()
    (path,) = Path(os.environ["AZUREML_MODEL_DIR"]).rglob("model.json")
    model = json.loads(path.read_text())


def run(raw_data: str) -> list[bool]:
    """Return, for each point, whether it is inside the circle."""
    points = json.loads(raw_data)["points"]
    return [is_inside(x, y) for x, y in points]


def is_inside(x: float, y: float) -> bool:
    """Classify one point with the model."""
    features = (x, y, x * x + y * y)
    score = model["bias"] + sum(weight * value for weight, value in zip(model["weights"], features, strict=True))
    return score > 0


def start_remote_debugging() -> None:
    """Allow a debugger to attach later if the deployment's environment enables debugging; do not wait for a debugger.

    An endpoint has no command line, so environment variables replace the arguments of a job.
    """
    print(f"score.py is in {Path(__file__).resolve().parent}", flush=True)  # the remoteRoot in launch.json
    relay_agent.start_remote_debugging_from_args([
        "--is-debug", os.environ.get("RELAY_DEBUG", "false"),
        "--debug-relay-connection-name", os.environ.get("RELAY_DEBUG_CONNECTION_NAME", ""),
        "--debug-port", os.environ.get("RELAY_DEBUG_PORT", "5678"),
        "--debug-relay-connection-string-secret", os.environ.get("RELAY_DEBUG_CONNECTION_STRING_SECRET", ""),
        "--debug-wait", "0",
    ])  # fmt: skip
