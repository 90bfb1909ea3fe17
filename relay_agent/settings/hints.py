"""Hints for errors in a job's log; they name the job's equivalents of `relay-agent` options.

    use --hc myhc          use --debug-relay-connection-name myhc
    use --namespace        use RELAY_NAMESPACE

A job started by `relay-agent run` has the options of `relay-agent`, so its hints are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from relay_agent.settings.environment import MODE
from relay_core.access_settings import ACCESS_OPTIONS

__all__ = ["hint_for_job"]

_ARGUMENTS = {
    "--hc": "--debug-relay-connection-name",
    "--connection-string-secret": "--debug-relay-connection-string-secret",
}
_VARIABLES = {option.option: option.variable for option in ACCESS_OPTIONS if option.variable}
_OPTION = re.compile(r"(--[a-z-]+)(?: or ([A-Z_]+))?")


def hint_for_job(hint: str, environ: Mapping[str, str]) -> str:
    """Convert a hint from the agent to a hint for a job.

    Args:
        hint: A hint that may name options of `relay-agent`.
        environ: The environment of the job.
    """
    return hint if environ.get(MODE) else _OPTION.sub(_replace, hint)


def _replace(found: re.Match[str]) -> str:
    option, variable = found.groups()
    if argument := _ARGUMENTS.get(option):
        return found[0].replace(option, argument)
    other = _VARIABLES.get(option)
    return found[0] if other is None or variable not in {None, other} else other
