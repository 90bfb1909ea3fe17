"""Debug a step on a cluster of Azure Kubernetes Service or Azure Arc that is attached to the workspace.

python kubernetes.py --dry-run
python kubernetes.py --is-debug true --debug-relay-connection-name myhc
"""

import sys
from pathlib import Path

from azure.ai.ml import command
from azure.ai.ml.entities import PipelineJob

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from azureml_jobs import CURATED, INSTALL, build_pipeline, parse_arguments, run, variables  # noqa: E402

from relay_agent.azureml import DEBUG_ARGUMENTS, debug_inputs  # noqa: E402

INSTANCE_TYPE = "defaultinstancetype"
"""The instance type that every attached cluster has; others are custom resources of the cluster."""


def main() -> int:
    """Submit the job, or print it; return the exit status."""
    options = parse_arguments(__doc__, compute="k8s-compute")

    def build(code: Path) -> PipelineJob:
        train = command(
            name="train",
            code=code,
            command=INSTALL + "python train.py " + DEBUG_ARGUMENTS,
            inputs=debug_inputs(5678),
            environment=CURATED,
            environment_variables=variables(options),
            instance_type=INSTANCE_TYPE,
        )
        return build_pipeline(options, "kubernetes", [train])

    return run(options, HERE / "code", build)


if __name__ == "__main__":
    sys.exit(main())
