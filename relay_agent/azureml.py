"""Helpers for Azure ML pipelines (SDK v2): they make steps debuggable, and find errors that the SDK does not report.

    train = command(
        command="python train.py --rate ${{inputs.rate}} " + DEBUG_ARGUMENTS,
        inputs={"rate": Input(type="number"), **debug_inputs(port=5678)},
        ...
    )
    job = my_pipeline(is_debug=True, debug_relay_connection_name="myhc")
    prepare_debug_run(job)
    problems = find_problems(rest_body(job))

The program that submits a pipeline imports this module; a job does not. It handles the SDK's objects without importing
the SDK, and does not depend on the relay. All functions except `prepare_debug_run` and `rest_body` work on plain data:
a pipeline's REST body, in which each step contains its component.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from relay_core.errors import ConfigurationError
from relay_core.value_parsers import MAX_PORT

DEBUG_ARGUMENTS = (
    "--is-debug ${{inputs.is_debug}} "
    "$[[--debug-relay-connection-name ${{inputs.debug_relay_connection_name}}]] "
    "--debug-port ${{inputs.debug_port}} "
    "$[[--debug-relay-connection-string-secret ${{inputs.debug_relay_connection_string_secret}}]]"
)
"""Append this to a step's command or to a parallel step's program arguments. Azure ML omits a `$[[ ]]` whose input has
no value."""

FIRST_PORT = 1024
"""Ports below 1024 are privileged: relay-client cannot listen on them on the developer's machine."""
MAX_PAUSE = 24 * 60 * 60
"""Seconds that a parallel step may pause in a debug run: enough to hold it overnight (Azure ML allows 72 h)."""
PARALLEL_TIMEOUTS = ("--first_task_creation_timeout", "--task_overhead_timeout", "--progress_update_timeout")
"""Program arguments that set timeouts of Azure ML's driver for parallel steps; the defaults are minutes or less."""

_BRACKET = re.compile(r"\$\[\[(.*?)\]\]")
_REFERENCE = re.compile(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}")
_PARENT_INPUT = re.compile(r"\$\{\{\s*parent\.inputs\.(\w+)\s*\}\}")

Body = dict[str, Any]


def debug_inputs(port: int) -> dict[str, dict[str, Any]]:
    """Return the inputs that DEBUG_ARGUMENTS uses, for `command(inputs=...)` and `parallel_run_function(inputs=...)`.

    Args:
        port: The step's port in launch.json; a distributed step uses one more port for each additional process.
    """
    return {
        "is_debug": {"type": "boolean", "default": False},
        "debug_relay_connection_name": {"type": "string", "optional": True},
        "debug_port": {"type": "integer", "default": port, "min": FIRST_PORT, "max": MAX_PORT},
        "debug_relay_connection_string_secret": {"type": "string", "optional": True},
    }


def prepare_debug_run(job: Any) -> None:
    """Make every step of a pipeline job run, and raise the timeouts of its parallel steps for interactive debugging.

    Without this, Azure ML reuses the results of earlier runs, and kills and retries a mini-batch that takes longer than
    a minute. The settings are part of the submitted job; the pipeline input `is_debug` does not change them.
    """
    job.settings.force_rerun = True
    for node in job.jobs.values():
        if node.type != "parallel":
            continue
        node.retry_settings = {"max_retries": 0, "timeout": MAX_PAUSE}
        node.max_concurrency_per_instance = 1  # a second process would claim the same port
        arguments = node.task.program_arguments or ""
        missing = [f"{name} {MAX_PAUSE}" for name in PARALLEL_TIMEOUTS if name not in arguments]
        node.task.program_arguments = " ".join([arguments, *missing]).strip()


def rest_body(job: Any) -> Body:
    """Return the REST body that the SDK sends to Azure ML for a pipeline job, with components instead of their ids."""
    body: Body = _plain(job)
    return body


def _plain(value: Any) -> Any:
    """Convert an SDK object to JSON values."""
    if hasattr(value, "_to_rest_object"):
        value = value._to_rest_object()  # noqa: SLF001 - the SDK's public functions for this need a workspace
    if hasattr(value, "as_dict"):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


class Step:
    """One step in a pipeline's REST body, with the values of its inputs.

    Args:
        name: Its name in the pipeline.
        node: Its part of the body, including the component and not only the component's id.
        pipeline_inputs: The values of the pipeline's inputs.
    """

    def __init__(self, name: str, node: Body, pipeline_inputs: Mapping[str, str]) -> None:
        self.name = name
        self.spec: Body = node["componentId"]["properties"]["componentSpec"]
        """The component: code, environment, declared inputs and outputs."""
        self.settings: Body = self.spec | {key: value for key, value in node.items() if key not in {"inputs", "name"}}
        """The component's settings, overridden by those of the step in the pipeline."""
        self.is_parallel = "task" in self.settings
        """Whether it is a parallel step, which Azure ML's driver runs one mini-batch at a time."""
        self.inputs: Mapping[str, Body] = self.spec.get("inputs", {})
        """Declared inputs."""
        self.outputs: Mapping[str, Body] = self.spec.get("outputs", {})
        self.values = dict(_values(self.inputs, node.get("inputs", {}), pipeline_inputs))
        """Values of the inputs that have one; the value of a data input refers to another step's output."""

    def __repr__(self) -> str:
        return f"<Step {self.name} {sorted(self.inputs)}>"

    @property
    def template(self) -> str:
        """The command, or the arguments of a parallel step's script, before the inputs are filled in."""
        text: str = self.settings["task"].get("program_arguments", "") if self.is_parallel else self.settings["command"]
        return text

    @property
    def nodes(self) -> int:
        """Number of machines on which it runs."""
        return int((self.settings.get("resources") or {}).get("instance_count") or 1)

    @property
    def processes_per_node(self) -> int:
        """Number of ranks on each machine; 1 for a parallel step, which has no ranks."""
        return int((self.settings.get("distribution") or {}).get("process_count_per_instance") or 1)

    @property
    def ports(self) -> range:
        """The ports of its processes in launch.json: `debug_port`, plus one more for each additional rank."""
        first = self.values.get("debug_port", "")
        if not first.isdecimal():
            return range(0)
        return range(int(first), int(first) + (1 if self.is_parallel else self.nodes * self.processes_per_node))

    def expand(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """Fill a step's inputs and outputs into its template, as Azure ML does before it starts the step.

        Args:
            inputs: Text of the inputs that have a value.
            outputs: Paths of the outputs.

        Raises:
            ConfigurationError: the template refers to an input or output without a value.
        """
        known = {("inputs", name): text for name, text in inputs.items()}
        known |= {("outputs", name): text for name, text in outputs.items()}

        def expand_optional(bracket: re.Match[str]) -> str:
            return bracket[1] if all(match.groups() in known for match in _REFERENCE.finditer(bracket[1])) else ""

        def expand_reference(reference: re.Match[str]) -> str:
            kind, name = reference.groups()
            if (kind, name) not in known:
                raise ConfigurationError(f"step '{self.name}' needs {kind[:-1]} '{name}', which has no value")
            return known[kind, name]

        return _REFERENCE.sub(expand_reference, _BRACKET.sub(expand_optional, self.template))


def read_steps(body: Body) -> list[Step]:
    """Return the steps of a pipeline, in the order of their definition.

    Steps with a registered component, which the body contains only by id, and nested pipelines are omitted.
    """
    properties = body["properties"]
    values = {name: str(given["value"]) for name, given in properties.get("inputs", {}).items() if "value" in given}
    return [
        Step(name, node, values)
        for name, node in properties["jobs"].items()
        if isinstance(node.get("componentId"), dict) and node.get("type") in {"command", "parallel"}
    ]


def find_problems(body: Body) -> list[str]:
    """Return the errors in a pipeline that the SDK's validation does not detect, one sentence each.

    These are an undeclared name in a command, an optional input used as a required one, a number out of bounds, and two
    steps with the same port in launch.json.
    """
    steps = read_steps(body)
    problems = [f"step '{step.name}': {problem}" for step in steps for problem in _problems(step)]
    for one, other in itertools.combinations(steps, 2):
        if shared := sorted(set(one.ports) & set(other.ports)):
            names = f"'{one.name}' and '{other.name}'"
            problems.append(f"steps {names} share port {shared[0]}: each step needs its own port")
    return problems


def _problems(step: Step) -> Iterator[str]:
    declared = {"inputs": step.inputs, "outputs": step.outputs}
    for kind, name in dict.fromkeys(match.groups() for match in _REFERENCE.finditer(step.template)):
        if name not in declared[kind]:
            yield f"${{{{{kind}.{name}}}}} is not one of its {kind}"
    for match in _REFERENCE.finditer(_BRACKET.sub("", step.template)):
        if match[1] == "inputs" and step.inputs.get(match[2], {}).get("optional"):
            yield f"optional input '{match[2]}' is used outside $[[ ]], so the step fails if the input has no value"
    for name, bounds in step.inputs.items():
        if name in step.values and not _within(step.values[name], bounds):
            yield f"input '{name}' is {step.values[name]}, but must be {_span(bounds)}"
    if step.ports and step.ports[0] <= MAX_PORT < step.ports[-1]:
        yield f"its {len(step.ports)} processes need ports up to {step.ports[-1]}, but the highest port is {MAX_PORT}"


def _within(value: str, bounds: Body) -> bool:
    """Whether a number is within its declared bounds; True for values without bounds."""
    if bounds.get("type") not in {"integer", "number"} or value.startswith("${{"):
        return True
    try:
        return float(bounds.get("min", "-inf")) <= float(value) <= float(bounds.get("max", "inf"))
    except ValueError:
        return False


def _span(bounds: Body) -> str:
    if "min" not in bounds:
        return f"at most {bounds['max']}" if "max" in bounds else "a number"
    return f"from {bounds['min']} to {bounds['max']}" if "max" in bounds else f"at least {bounds['min']}"


def _values(declared: Mapping[str, Body], given: Body, pipeline_inputs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each input that has a value: the step's value, the pipeline's, or the default."""
    for name, declaration in declared.items():
        value = given.get(name, {}).get("value")
        from_pipeline = _PARENT_INPUT.fullmatch(str(value))
        if from_pipeline:
            value = pipeline_inputs.get(from_pipeline[1])
        if value is None:
            value = declaration.get("default")
        if value is not None:
            yield name, str(value)
