"""The Azure ML run to which this node belongs, read from the environment variables of its job."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["find_run_url"]

STUDIO = "https://ml.azure.com"
_WORKSPACE = {
    "subscriptions": "AZUREML_ARM_SUBSCRIPTION",
    "resourcegroups": "AZUREML_ARM_RESOURCEGROUP",
    "workspaces": "AZUREML_ARM_WORKSPACE_NAME",
}
"""The parts of the workspace's path, and the variables that azureml-mlflow reads them from."""
_NAME = re.compile(r"[\w.()-]{1,256}", re.ASCII)
"""Characters that Azure allows in these names; a value with another character, such as a space, would break the
link."""


def find_run_url(environ: Mapping[str, str]) -> str:
    """Return the address of the run's page in Azure ML studio; "" outside Azure ML or if a variable is missing."""
    run = environ.get("AZUREML_RUN_ID", "")
    parts = {name: environ.get(variable, "") for name, variable in _WORKSPACE.items()}
    if not all(_NAME.fullmatch(text) for text in (run, *parts.values())):
        return ""
    workspace = "".join(f"/{name}/{text}" for name, text in parts.items())
    return f"{STUDIO}/runs/{run}?wsid={workspace}"
