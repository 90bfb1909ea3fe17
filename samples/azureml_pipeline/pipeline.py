"""Definition of the pipeline: three steps of different kinds, each with the four debug arguments."""

from pathlib import Path

from azure.ai.ml import Input, Output, PyTorchDistribution, command, dsl
from azure.ai.ml.entities import BuildContext, Environment, PipelineJob
from azure.ai.ml.parallel import RunFunction, parallel_run_function

from relay_agent.azureml import DEBUG_ARGUMENTS, debug_inputs

HERE = Path(__file__).resolve().parent
STEPS = HERE / "steps"
IMAGE = HERE / "image"
FIRST_PORT = 5678
"""Port of the first step; the other steps use the next two, and the ranks of `train` also use the ports above these."""

CURVES = "logs/tensorboard"
"""Folder for TensorBoard's event files; Azure ML keeps the contents of `logs` with the run."""

OptionalText = Input(type="string", optional=True)


def build_pipeline(
    *,
    compute: str,
    first_port: int = FIRST_PORT,
    key_vault_url: str | None = None,
    is_debug: bool = False,
    connection_name: str | None = None,
    connection_string_secret: str | None = None,
    build_context: Path = IMAGE,
) -> PipelineJob:
    """Return the job; only its image depends on `build_context`, which must be complete when the job is submitted."""
    everywhere = {
        "environment": Environment(build=BuildContext(path=build_context)),
        "variables": {"KEY_VAULT_URL": key_vault_url} if key_vault_url else {},
    }
    make_points = prepare_component(first_port, **everywhere)
    make_features = featurize_component(first_port + 1, **everywhere)
    make_model = train_component(first_port + 2, **everywhere)

    @dsl.pipeline(name="circle", compute=compute)
    def circle(
        is_debug: bool = False,
        debug_relay_connection_name: OptionalText = None,
        debug_relay_connection_string_secret: OptionalText = None,
    ) -> None:
        debug = {
            "is_debug": is_debug,
            "debug_relay_connection_name": debug_relay_connection_name,
            "debug_relay_connection_string_secret": debug_relay_connection_string_secret,
        }
        prepare = make_points(**debug)
        featurize = make_features(points=prepare.outputs.points, **debug)
        train = make_model(features=featurize.outputs.features, **debug)  # noqa: F841 - the variable names the step

    return circle(
        is_debug=is_debug,
        debug_relay_connection_name=connection_name,
        debug_relay_connection_string_secret=connection_string_secret,
    )


def prepare_component(port: int, environment: Environment, variables: dict[str, str]):  # noqa: ANN201 - SDK's builder
    """Return a component that runs a plain command."""
    return command(
        name="prepare",
        code=STEPS,
        command="python prepare.py --files ${{inputs.files}} --points ${{outputs.points}} " + DEBUG_ARGUMENTS,
        inputs={"files": Input(type="integer", default=8), **debug_inputs(port)},
        outputs={"points": Output(type="uri_folder")},
        environment=environment,
        environment_variables=variables,
    )


def featurize_component(port: int, environment: Environment, variables: dict[str, str]):  # noqa: ANN201 - SDK's builder
    """Return a parallel component that processes two files at a time, on two nodes."""
    return parallel_run_function(
        name="featurize",
        inputs={"points": Input(type="uri_folder"), **debug_inputs(port)},
        outputs={"features": Output(type="uri_folder"), "summary": Output(type="uri_file")},
        input_data="${{inputs.points}}",
        mini_batch_size="2",
        instance_count=2,
        max_concurrency_per_instance=2,
        retry_settings={"max_retries": 2, "timeout": 60},
        task=RunFunction(
            code=STEPS,
            entry_script="featurize.py",
            program_arguments="--features ${{outputs.features}} " + DEBUG_ARGUMENTS,
            append_row_to="${{outputs.summary}}",
            environment=environment,
        ),
        environment_variables=variables,
    )


def train_component(port: int, environment: Environment, variables: dict[str, str]):  # noqa: ANN201 - SDK's builder
    """Return a component that runs a distributed command, on two nodes with two processes each."""
    return command(
        name="train",
        code=STEPS,
        command="python train.py --features ${{inputs.features}} --model ${{outputs.model}} "
        f"--curves {CURVES} --debug-tensorboard {CURVES} {DEBUG_ARGUMENTS}",
        inputs={"features": Input(type="uri_folder"), **debug_inputs(port)},
        outputs={"model": Output(type="uri_folder")},
        instance_count=2,
        distribution=PyTorchDistribution(process_count_per_instance=2),
        environment=environment,
        environment_variables=variables,
    )
