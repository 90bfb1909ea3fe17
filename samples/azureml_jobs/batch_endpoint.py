"""Deploy a pipeline to a batch endpoint, the successor of a published pipeline, and start it in a debug run.

python batch_endpoint.py --dry-run                                                  print component and deployment
python batch_endpoint.py                                                            deploy
python batch_endpoint.py --is-debug true --debug-relay-connection-name myhc         deploy, and start a debug run
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from azure.ai.ml import Input, command
from azure.ai.ml.entities import BatchEndpoint, PipelineComponentBatchDeployment

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import PipelineComponent

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from azureml_jobs import (  # noqa: E402
    CURATED,
    INSTALL,
    build_pipeline,
    code_with_wheel,
    connect,
    parse_arguments,
    variables,
)

from relay_agent.azureml import DEBUG_ARGUMENTS, debug_inputs, rest_body  # noqa: E402

ENDPOINT = "pi-batch"
"""Must be unique in the region."""


def main() -> int:
    """Deploy the pipeline, and start it if it is to be debugged; or print it. Return the exit status."""
    options = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="code-") as folder:
        train = command(
            name="train",
            code=code_with_wheel(HERE / "code", Path(folder), options.wheel),
            command=INSTALL + "python train.py " + DEBUG_ARGUMENTS,
            inputs=debug_inputs(5678),
            environment=CURATED,
            environment_variables=variables(options),
        )
        component = build_pipeline(options, "pi", [train]).component
        if options.dry_run:
            deployment = build_deployment(options.compute, "azureml:pi@latest")
            rest = deployment._to_rest_object("westeurope")  # noqa: SLF001 - the region is the workspace's
            print(json.dumps({"component": rest_body(component), "deployment": rest_body(rest)}, indent=2))
        else:
            deploy(options, connect(), component)
    return 0


def build_deployment(compute: str, component: "PipelineComponent | str") -> PipelineComponentBatchDeployment:
    """Return the deployment; each of its runs executes all steps, also if one of them fails."""
    return PipelineComponentBatchDeployment(
        name="pi",
        endpoint_name=ENDPOINT,
        component=component,
        settings={"default_compute": compute, "force_rerun": True, "continue_on_step_failure": True},
    )


def deploy(options: argparse.Namespace, ml_client: "MLClient", component: "PipelineComponent") -> None:
    """Create or update component, endpoint and deployment; in a debug run, start the deployment, and print its run."""
    registered = ml_client.components.create_or_update(component)
    ml_client.batch_endpoints.begin_create_or_update(BatchEndpoint(name=ENDPOINT)).result()
    deployment = build_deployment(options.compute, registered)
    ml_client.batch_deployments.begin_create_or_update(deployment).result()
    if options.is_debug:
        inputs = {
            "is_debug": Input(type="boolean", default=True),
            "debug_relay_connection_name": Input(type="string", default=options.debug_relay_connection_name),
        }
        if secret := options.debug_relay_connection_string_secret:
            inputs["debug_relay_connection_string_secret"] = Input(type="string", default=secret)
        print(ml_client.batch_endpoints.invoke(endpoint_name=ENDPOINT, deployment_name="pi", inputs=inputs).name)


if __name__ == "__main__":
    sys.exit(main())
