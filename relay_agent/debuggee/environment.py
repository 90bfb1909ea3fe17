"""This process's answer to the question `env`: its environment variables, without secrets."""

from __future__ import annotations

import os

from relay_agent.values.secrets import HIDDEN, is_secret
from relay_core.agent_api.questions import Environment, ReadEnvironment

MAX_VARIABLES = 1000
MAX_VALUE = 4096
"""Maximum number of characters of a value; the rest is replaced by "..."."""
MAX_CHARACTERS = 256 * 1024
"""Maximum number of characters of all names and values: JSON encodes a character as up to twelve bytes, and a message
to the agent is at most 4 MiB long."""


def read_environment(_question: ReadEnvironment) -> Environment:
    """Return the environment variables as they are now, in the order of their names."""
    variables: dict[str, str] = {}
    names, size = sorted(os.environ), 0
    for name in names:
        value = os.environ.get(name)
        if value is None:  # deleted since then, by another thread
            continue
        shown = HIDDEN if is_secret(name, value) else _shortened(value)
        size += len(name) + len(shown)
        if size > MAX_CHARACTERS or len(variables) == MAX_VARIABLES:
            break
        variables[name] = shown
    return Environment(variables, len(names) - len(variables))


def _shortened(value: str) -> str:
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."
