"""Debug a step in an image that does not contain relay-debug: its command installs the wheel first.

python any_image.py --dry-run
python any_image.py --is-debug true --debug-relay-connection-name myhc
"""

import sys
from pathlib import Path

from azure.ai.ml import command
from azure.ai.ml.entities import PipelineJob

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from azureml_jobs import CURATED, INSTALL, build_pipeline, parse_arguments, run, variables  # noqa: E402

from relay_agent.azureml import DEBUG_ARGUMENTS, debug_inputs  # noqa: E402


def main() -> int:
    """Submit the job, or print it; return the exit status."""
    options = parse_arguments(__doc__)

    def build(code: Path) -> PipelineJob:
        train = command(
            name="train",
            code=code,
            command=INSTALL + "python train.py " + DEBUG_ARGUMENTS,
            inputs=debug_inputs(5678),
            environment=CURATED,
            environment_variables=variables(options),
        )
        return build_pipeline(options, "any_image", [train])

    return run(options, HERE / "code", build)


if __name__ == "__main__":
    sys.exit(main())
