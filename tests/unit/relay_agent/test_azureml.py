"""Facts about the helpers for Azure ML pipelines, on REST bodies as the SDK makes them."""

from types import SimpleNamespace

import pytest

from relay_agent.azureml import (
    DEBUG_ARGUMENTS,
    Step,
    debug_inputs,
    find_problems,
    prepare_debug_run,
    read_steps,
    rest_body,
)
from relay_core.errors import ConfigurationError


def inputs() -> dict:
    """The debugging inputs as the SDK sends them: numbers and flags are text."""
    return {
        name: {key: value if key == "optional" else str(value) for key, value in spec.items()}
        for name, spec in debug_inputs(5678).items()
    }


def command(text: str = "", *, given: dict | None = None, declared: dict | None = None, **settings) -> dict:
    """A command step of a body."""
    spec = {"command": f"python step.py {text} {DEBUG_ARGUMENTS}", "inputs": inputs() | (declared or {})}
    return node("command", spec, given, settings)


def parallel(arguments: str = "", *, given: dict | None = None, **settings) -> dict:
    """A parallel step of a body."""
    spec = {"task": {"program_arguments": f"{arguments} {DEBUG_ARGUMENTS}"}, "inputs": inputs()}
    return node("parallel", spec, given, settings)


def node(kind: str, spec: dict, given: dict | None, settings: dict) -> dict:
    spec["outputs"] = {"result": {"type": "uri_folder"}}
    literals = {name: {"job_input_type": "literal", "value": value} for name, value in (given or {}).items()}
    return {"type": kind, "inputs": literals, "componentId": {"properties": {"componentSpec": spec}}, **settings}


def body(pipeline_inputs: dict | None = None, /, **jobs: dict) -> dict:
    values = {name: {"jobInputType": "literal", "value": value} for name, value in (pipeline_inputs or {}).items()}
    return {"properties": {"jobs": jobs, "inputs": values}}


def only_step(job: dict, pipeline_inputs: dict | None = None) -> Step:
    (step,) = read_steps(body(pipeline_inputs, step=job))
    return step


def test_values():
    """A step's value is the one it was given, else the pipeline's, else the default; without any it has none."""
    given = {"debug_port": "6000", "is_debug": "${{parent.inputs.is_debug}}"}
    assert {"debug_port": "6000", "is_debug": "True"} == only_step(command(given=given), {"is_debug": "True"}).values
    assert {"debug_port": "6000", "is_debug": "False"} == only_step(command(given=given)).values
    assert {"debug_port": "5678", "is_debug": "False"} == only_step(command()).values


def test_expand():
    """Inputs and outputs are filled in, and a bracket whose input has no value is dropped."""
    step = only_step(command("--out ${{outputs.result}}"))
    words = step.expand(step.values | {"debug_relay_connection_name": "myhc"}, {"result": "/data/out"}).split()
    expected = "python step.py --out /data/out --is-debug False --debug-relay-connection-name myhc --debug-port 5678"
    assert expected.split() == words


def test_expand_without_a_needed_value():
    """A reference outside brackets that has no value is an error with both names."""
    step = only_step(command("--data ${{ inputs.data }}", declared={"data": {"type": "uri_folder"}}))
    with pytest.raises(ConfigurationError, match="step 'step' needs input 'data', which has no value"):
        step.expand(step.values, {})


def test_settings_of_the_node_win():
    """The pipeline's settings for a step replace those of its component."""
    job = parallel(task={"program_arguments": "--mine"}, resources={"instance_count": 3})
    step = only_step(job)
    assert ("--mine", 3) == (step.template, step.nodes)
    assert 1 == only_step(parallel()).nodes
    assert "<Step step ['debug_port', " in repr(step)


def test_ports():
    """Each rank of a distributed step has its own port; a parallel step debugs one process, and has one."""
    ranks = {"resources": {"instance_count": 2}, "distribution": {"process_count_per_instance": 2}}
    assert range(5678, 5682) == only_step(command(**ranks)).ports
    assert range(5678, 5679) == only_step(parallel(resources={"instance_count": 2})).ports
    assert range(0) == only_step(command(given={"debug_port": "none"})).ports


def test_good_pipeline():
    """A pipeline without faults has no problems, also when a parallel step and a registered one are in it."""
    jobs = body(
        one=command("--out ${{outputs.result}}"),
        two=parallel(given={"debug_port": "5679"}),
        three={"type": "command", "componentId": "azureml:registered:1", "inputs": {}},
    )
    assert [] == find_problems(jobs)
    assert ["one", "two"] == [step.name for step in read_steps(jobs)]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (command("--rate ${{inputs.other}}"), "${{inputs.other}} is not one of its inputs"),
        (parallel("--out ${{outputs.other}}"), "${{outputs.other}} is not one of its outputs"),
        (command("$[[--x ${{inputs.x}}]]"), "${{inputs.x}} is not one of its inputs"),
        (
            command("--x ${{inputs.x}}", declared={"x": {"type": "string", "optional": True}}),
            "optional input 'x' is used outside $[[ ]], so the step fails if the input has no value",
        ),
        (command(given={"debug_port": "70000"}), "input 'debug_port' is 70000, but must be from 1024 to 65535"),
        (command(given={"debug_port": "80"}), "input 'debug_port' is 80, but must be from 1024 to 65535"),
        (command(given={"debug_port": "abc"}), "input 'debug_port' is abc, but must be from 1024 to 65535"),
        (
            command(given={"rate": "2"}, declared={"rate": {"type": "number", "max": "1"}}),
            "input 'rate' is 2, but must be at most 1",
        ),
        (
            command(given={"rate": "2"}, declared={"rate": {"type": "number", "min": "3"}}),
            "input 'rate' is 2, but must be at least 3",
        ),
        (
            command(given={"rate": "x"}, declared={"rate": {"type": "number"}}),
            "input 'rate' is x, but must be a number",
        ),
        (
            command(given={"debug_port": "65534"}, resources={"instance_count": 4}),
            "its 4 processes need ports up to 65537, but the highest port is 65535",
        ),
    ],
)
def test_problems(job, problem):
    """Each fault that the SDK lets pass is found, once, and named."""
    assert [f"step 'step': {problem}"] == find_problems(body(step=job))


def test_shared_ports():
    """Two steps with one port are a problem, also when only their ranks meet."""
    ranks = {"resources": {"instance_count": 2}, "distribution": {"process_count_per_instance": 2}}
    jobs = body(a=command(**ranks), b=parallel(given={"debug_port": "5681"}), c=command(given={"debug_port": "5682"}))
    assert ["steps 'a' and 'b' share port 5681: each step needs its own port"] == find_problems(jobs)


class Node(SimpleNamespace):
    """A step as the SDK holds it."""


def sdk_job(*nodes: Node) -> SimpleNamespace:
    return SimpleNamespace(settings=SimpleNamespace(force_rerun=None), jobs={str(i): n for i, n in enumerate(nodes)})


def test_prepare_debug_run():
    """A debug run reruns everything, and gives a parallel step a day, no retries and one process per node."""
    step = Node(type="parallel", task=SimpleNamespace(program_arguments="--task_overhead_timeout 1000 --x 1"))
    job = sdk_job(Node(type="command"), step)
    for _ in range(2):  # twice is the same as once
        prepare_debug_run(job)
        assert job.settings.force_rerun is True
        assert ({"max_retries": 0, "timeout": 86400}, 1) == (step.retry_settings, step.max_concurrency_per_instance)
        assert (
            "--task_overhead_timeout 1000 --x 1 --first_task_creation_timeout 86400 --progress_update_timeout 86400"
        ) == step.task.program_arguments
    assert {"type": "command"} == vars(job.jobs["0"])


def test_prepare_debug_run_without_arguments():
    """A parallel step without program arguments of its own gets the timeouts only."""
    step = Node(type="parallel", task=SimpleNamespace(program_arguments=None))
    prepare_debug_run(sdk_job(step))
    assert step.task.program_arguments.startswith("--first_task_creation_timeout 86400 ")


def test_rest_body():
    """SDK objects at any depth become plain data."""
    component = SimpleNamespace(_to_rest_object=lambda: SimpleNamespace(as_dict=lambda: {"name": "c", "cpus": 2}))
    job = SimpleNamespace(_to_rest_object=lambda: {"jobs": [component, None, True], "path": pytest})
    assert {"jobs": [{"name": "c", "cpus": 2}, None, True], "path": str(pytest)} == rest_body(job)
