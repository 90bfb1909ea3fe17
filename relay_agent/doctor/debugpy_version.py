"""Check of the installed debugpy."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS
from relay_core.errors import ConfigurationError

__all__ = ["check_debugpy", "installed_debugpy"]

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def installed_debugpy() -> str | None:
    """Return the version of debugpy in this environment, or None; debugpy is not imported."""
    try:
        return version("debugpy")
    except PackageNotFoundError:
        return None


def check_debugpy(found: str | None) -> str:
    """Return a version of debugpy as text, with the tested versions if it is not one of them.

    Args:
        found: The version, or None if debugpy is not installed.

    Raises:
        ConfigurationError: debugpy is missing or too old.
    """
    oldest, newest = CHECKED_VERSIONS
    hint = f"in the job's environment, run: pip install 'debugpy>={oldest}'"
    if found is None:
        raise ConfigurationError("debugpy is not installed", hint=hint)
    if _numbers(found) < _numbers(oldest):
        raise ConfigurationError(f"debugpy {found} is older than {oldest}, the oldest supported version", hint=hint)
    if _numbers(found) > _numbers(newest):
        return f"debugpy {found}; relay-debug was tested with {oldest} to {newest}"
    return f"debugpy {found}"


def _numbers(text: str) -> tuple[int, ...]:
    match = _NUMBERS.match(text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
