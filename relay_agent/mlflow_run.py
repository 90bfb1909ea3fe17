"""The MLflow run that a job belongs to, as named by its environment. Azure ML sets these variables in every job."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

__all__ = ["find_run"]


def find_run(environ: Mapping[str, str]) -> str | None:
    """Return the id of the run; None without a tracking server, a run, or MLflow."""
    run = environ.get("MLFLOW_RUN_ID") or environ.get("AZUREML_RUN_ID")
    if not run or not environ.get("MLFLOW_TRACKING_URI") or importlib.util.find_spec("mlflow") is None:
        return None
    return run
