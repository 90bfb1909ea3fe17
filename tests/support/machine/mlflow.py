"""A real MLflow server on loopback, and the Python of `.mlflow`, which has MLflow, TensorBoard and this project."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port

__all__ = ["PYTHON", "ROOT", "MlflowServer", "mlflow_server", "needs_mlflow"]

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".mlflow" / "bin" / "python"

needs_mlflow = pytest.mark.skipif(
    not (ROOT / ".mlflow" / ".ready").exists(), reason="mlflow and tensorboard are not installed: make extras"
)


@dataclass
class MlflowServer:
    """A running server, as its REST interface shows it."""

    url: str
    directory: Path

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        """Send a request of MLflow's REST API 2.0, and return the response."""
        request = urllib.request.Request(
            f"{self.url}/api/2.0/mlflow/{path}", headers={"Content-Type": "application/json"}
        )
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(request, data, timeout=DEADLINE) as response:
            found: dict[str, Any] = json.load(response)
        return found

    async def create_run(self, name: str, experiment: str = "0") -> str:
        """Create a run, and return its id."""
        run = await asyncio.to_thread(self.call, "runs/create", experiment_id=experiment, run_name=name, start_time=1)
        return str(run["run"]["info"]["run_id"])

    def end_run(self, run: str, files: dict[str, bytes], status: str = "FINISHED", experiment: str = "0") -> None:
        """Upload artifacts of a run, and end it."""
        for path, content in files.items():
            url = f"{self.url}/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/{path}"
            with urllib.request.urlopen(urllib.request.Request(url, content, method="PUT"), timeout=DEADLINE):
                pass
        self.call("runs/update", run_id=run, status=status, end_time=2)

    async def tags(self, run: str) -> dict[str, str]:
        """Return the tags of a run that MLflow itself does not set."""
        found = await asyncio.to_thread(self.call, f"runs/get?run_id={run}")
        tags = {tag["key"]: tag["value"] for tag in found["run"]["data"].get("tags", [])}
        return {key: value for key, value in tags.items() if not key.startswith("mlflow.")}


@contextlib.contextmanager
def mlflow_server(directory: Path) -> Iterator[MlflowServer]:
    """Run a server with its runs and artifacts in a directory.

    It stores them in files, because preparing a database takes as long as starting the server.
    """
    port = free_port()
    server = MlflowServer(f"http://127.0.0.1:{port}", directory)
    variables = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true", "PYTHONPATH": ""}
    with (directory / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
                *("--backend-store-uri", str(directory / "runs"), "--artifacts-destination", str(directory / "files")),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    try:
        _wait_until_ready(server)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(server: MlflowServer) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            server.call("experiments/get?experiment_id=0")
        except OSError:
            assert time.monotonic() < deadline, (server.directory / "mlflow.log").read_text()
            time.sleep(0.2)
        else:
            return
