"""Debug rank 0 of an MPI step, as Horovod uses it, and worker 0 of a TensorFlow step.

python distributed.py --dry-run
python distributed.py --is-debug true --debug-relay-connection-name myhc
"""

import sys
from pathlib import Path

from azure.ai.ml import MpiDistribution, TensorFlowDistribution, command
from azure.ai.ml.entities import PipelineJob

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from azureml_jobs import CURATED, INSTALL_ONCE, build_pipeline, parse_arguments, run, variables  # noqa: E402

from relay_agent.azureml import DEBUG_ARGUMENTS, debug_inputs  # noqa: E402


def main() -> int:
    """Submit the job, or print it; return the exit status."""
    options = parse_arguments(__doc__)

    def build(code: Path) -> PipelineJob:
        shared = {
            "code": code,
            "command": INSTALL_ONCE + "python train.py " + DEBUG_ARGUMENTS,
            "environment": CURATED,
            "environment_variables": variables(options),
            "instance_count": 2,
        }
        mpi = command(
            name="mpi",
            inputs=debug_inputs(5678),  # four ranks, on ports 5678 to 5681
            distribution=MpiDistribution(process_count_per_instance=2),
            **shared,
        )
        tensorflow = command(
            name="tensorflow",
            inputs=debug_inputs(5690),
            distribution=TensorFlowDistribution(worker_count=2, parameter_server_count=0),
            **shared,
        )
        return build_pipeline(options, "distributed", [mpi, tensorflow])

    return run(options, HERE / "code", build)


if __name__ == "__main__":
    sys.exit(main())
