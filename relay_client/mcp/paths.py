"""The expressions permitted without `--allow-control`: paths (`relay_client.compare.paths`); sans-IO.

Attribute access also executes code if it reaches a property or a `__getattr__`. A path is therefore not evaluated as it
is, but read by `relay_agent.values.static_path` in the job, which refuses properties and `__getattr__`. It is called by
a name that the agent defines, because an import would call the job's `__import__` if the job has one. In a job whose
relay_agent does not define that name, only single names can be evaluated.
"""

from __future__ import annotations

from relay_client.compare.paths import parse_path
from relay_core.agent_api.evaluation import PATH_READER
from relay_core.errors import RelayDebugError, UsageError

__all__ = ["ControlRefused", "as_static_read"]


class ControlRefused(RelayDebugError):
    """The call requires `--allow-control`, or the rank cannot be controlled at the moment."""


def as_static_read(expression: str) -> str:
    """Return the expression that reads a path in the job without executing the job's code.

    Raises:
        ControlRefused: the expression is not a path.
    """
    try:
        name, steps = parse_path(expression)
    except UsageError as error:
        raise ControlRefused(
            error.sentence,
            hint=f"{error.hint}; to permit other expressions, the user must start 'relay-client mcp' with "
            "--allow-control",
        ) from None
    return f"{PATH_READER}({', '.join([name, *map(repr, steps)])})" if steps else name
