"""Environment variables that pass the settings of `relay-agent run` to its job; users can also set them directly.

    RELAY_DEBUG              off (or empty), on-demand (no rank waits), or wait (1, true, yes, on)
    RELAY_DEBUG_PORT ...     the rows of `relay_agent.settings.table`
    RELAY_DEBUG_HC ...       the rows of `relay_core.access_settings`, except connection strings

Explicit options take precedence over environment variables (`relay_core.auth.find_access`), including in the processes
of the job. So the options of `relay-agent run` have their own variables. These contain only names and paths: a
connection string is passed in RELAY_CONNECTION_STRING and in no other variable.

In an OpenPAI job, the variables of the paipdb tool are used as defaults. DEBUG_TIMEOUT is the time to wait.
DEBUG_PORT_NAME is the label of a reserved port list, whose first port in task 0 becomes the port of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay_agent.settings.model import DebugSettings
from relay_agent.settings.table import SETTINGS, Setting, read_settings
from relay_core.access_settings import ACCESS_OPTIONS, OLD_NAME_VARIABLE, AccessSettings
from relay_core.errors import UsageError
from relay_core.value_parsers import is_port_text, read_flag

__all__ = ["ACCESS_VARIABLES", "HC", "MODE", "ON_DEMAND", "WAIT", "from_environment"]

MODE = "RELAY_DEBUG"
WAIT = "wait"
ON_DEMAND = "on-demand"

ACCESS_VARIABLES = {
    option.field: f"RELAY_DEBUG_{option.field.upper()}"
    for option in ACCESS_OPTIONS
    if option.field != "connection_string"
}
"""The variables for all fields of `AccessSettings` that are not secrets."""
HC = ACCESS_VARIABLES["hc"]


def from_environment(
    environ: Mapping[str, str], *, name_of: Callable[[Setting], str] = lambda setting: setting.variable
) -> DebugSettings | None:
    """Return the settings in an environment; None if debugging is off.

    Args:
        environ: The environment of a process.
        name_of: Returns the name of a setting for error messages; by default, its variable.

    Raises:
        UsageError: a value is invalid.
    """
    mode = environ.get(MODE, "").strip().lower()
    is_on = read_flag(mode)
    if is_on is False:
        return None
    if not is_on and mode not in {WAIT, ON_DEMAND}:
        raise UsageError(f"{MODE}: invalid mode: '{mode}'", hint=f"use off, {ON_DEMAND} or {WAIT}")
    texts = _of_openpai(environ)
    texts |= {setting.field: text for setting in SETTINGS if (text := environ.get(setting.variable, "").strip())}
    settings = DebugSettings(_access(environ), **read_settings(texts, name_of))
    return settings._replace(ranks="none") if mode == ON_DEMAND else settings


def _access(environ: Mapping[str, str]) -> AccessSettings:
    found = {field: environ.get(variable) or None for field, variable in ACCESS_VARIABLES.items()}
    return AccessSettings(**found | {"hc": found["hc"] or environ.get(OLD_NAME_VARIABLE) or None})


def _of_openpai(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that an OpenPAI job has for paipdb; invalid values are ignored.

    The names are those of contrib/debug-tools in microsoft/pai.
    """
    role = environ.get("PAI_CURRENT_TASK_ROLE_NAME", "")
    label = environ.get("DEBUG_PORT_NAME", "")
    # All tasks use the port of task 0, so that rank n has that port plus n in every task; nothing listens on it.
    port = environ.get(f"PAI_PORT_LIST_{role}_0_{label}", "").partition(",")[0].strip()
    wait = environ.get("DEBUG_TIMEOUT", "").strip() if role else ""
    found = {"port": port} if is_port_text(port) else {}
    return found | ({"wait": wait} if wait.isascii() and wait.isdecimal() else {})
