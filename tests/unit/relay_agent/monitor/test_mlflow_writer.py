"""Facts about the program that logs metrics to MLflow, with a tracking server that does not answer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.processes import ROOT
from tests.support.machine.deadline import DEADLINE

MLFLOW = """
import os, time

class MlflowClient:
    def log_batch(self, run, metrics):
        with open("writing", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)
"""
ENTITIES = "Metric = tuple"
AGENT = """
import os, subprocess, sys, time
command = [sys.executable, "-m", "relay_agent.monitor.mlflow_writer", "r1", str(os.getpid())]
writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
writer.stdin.write(b'{"time": 1, "step": 1, "metrics": {}}\\n')
writer.stdin.flush()
while not os.path.exists("writing") or not os.path.getsize("writing"):
    time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process has no new parent on Windows")
def test_stderr_is_released_when_the_agent_has_exited(tmp_path: Path) -> None:
    """Whoever reads the job's output until its end does not wait for the writer, which is still logging a sample."""
    package = tmp_path / "mlflow"
    package.mkdir()
    (package / "__init__.py").write_text(MLFLOW)
    (package / "entities.py").write_text(ENTITIES)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    try:
        done = subprocess.run(
            [sys.executable, "-c", AGENT], cwd=tmp_path, env=env, capture_output=True, timeout=DEADLINE, check=True
        )
        assert b"" == done.stderr
    finally:
        os.kill(int((tmp_path / "writing").read_text()), signal.SIGKILL)
