"""Logs metrics to an MLflow run: `python -m relay_agent.monitor.mlflow_writer RUN AGENT` reads a JSON line per sample.

This is a separate program, because importing mlflow takes seconds and 200 MB, and its requests block. The address and
the credentials of the server are in the environment, as MLflow reads them. The program outlives the job by at most
`LAST_SAMPLES_TIME`, and never keeps the job's stderr open, for which a pipeline or a scheduler may be waiting.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

LAST_SAMPLES_TIME = 60.0
"""Seconds to log the last samples once the agent has exited; a request that fails may be retried for minutes."""
POLL_INTERVAL = 0.5


def main(run: str, agent: str) -> int:
    """Log all samples up to the end of stdin; return 0, or 1 if MLflow cannot be imported.

    The first error is logged as one line on stderr. The line contains only the type of the error, because its text may
    contain what was sent to the server.

    Args:
        run: The id of the run.
        agent: The process id of the agent, which has started this process.
    """
    threading.Thread(target=_outlive_briefly, args=(int(agent),), daemon=True).start()
    try:
        from mlflow import MlflowClient  # noqa: PLC0415 - its errors are handled here
        from mlflow.entities import Metric  # noqa: PLC0415

        client = MlflowClient()
    except Exception as error:  # noqa: BLE001 - MLflow's plugins may raise any exception
        _warn(error)
        return 1
    has_failed = False
    for line in sys.stdin:
        try:
            sample: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # the pipe was full, and took only part of the line
        try:
            metrics = [Metric(key, value, sample["time"], sample["step"]) for key, value in sample["metrics"].items()]
            client.log_batch(run, metrics=metrics)
        except Exception as error:  # noqa: BLE001 - as above; the next sample may succeed
            if not has_failed:
                has_failed = True
                _warn(error)
    return 0


def _outlive_briefly(agent: int) -> None:
    """Wait for the exit of the agent, then release its output streams, and end this process soon."""
    while os.getppid() == agent:
        time.sleep(POLL_INTERVAL)
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    time.sleep(LAST_SAMPLES_TIME)
    os._exit(0)


def _warn(error: Exception) -> None:
    text = f"relay-agent: warning: cannot log the --debug-monitor metrics to the run: {type(error).__name__}"
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the agent's stderr


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
