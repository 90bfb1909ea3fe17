"""Environment variables that pass the settings of a run to its job; local runs; hints; and workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping

from relay_agent.inject._relay_debug_programs import MULTIPROCESSING, helper_reason
from relay_agent.settings.model import DebugSettings, RankSelection
from relay_agent.settings.ranks import SINGLE, ProcessIdentity, logical_port
from relay_agent.settings.table import SETTINGS, Setting, read_settings
from relay_core.access_settings import ACCESS_OPTIONS, OLD_NAME_VARIABLE, AccessSettings
from relay_core.errors import UsageError
from relay_core.value_parsers import is_port_text, read_flag

# Environment variables that pass the settings of `relay-agent run` to its job; users can also set them directly.
#
#     RELAY_DEBUG              off (or empty), on-demand (no rank waits), or wait (1, true, yes, on)
#     RELAY_DEBUG_PORT ...     the rows of `relay_agent.settings.table`
#     RELAY_DEBUG_HC ...       the rows of `relay_core.access_settings`, except connection strings
#
# Explicit options take precedence over environment variables (`relay_core.auth.find_access`), including in the
# processes of the job. So the options of `relay-agent run` have their own variables. These contain only names and
# paths: a connection string is passed in RELAY_CONNECTION_STRING and in no other variable.
#
# In an OpenPAI job, the variables of the paipdb tool are used as defaults. DEBUG_TIMEOUT is the time to wait.
# DEBUG_PORT_NAME is the label of a reserved port list, whose first port in task 0 becomes the port of rank 0.

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
    return settings._replace(ranks=RankSelection()) if mode == ON_DEMAND else settings


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


# A local run is only monitored: `--debug-monitor` is on, and nothing selects a relay, so no debugger can attach.
#
# A partly configured relay, such as a namespace without `--hc`, is still an error. So is a missing relay if the job
# must not run without a debugger (`--debug-on-timeout abort`).

LOCAL_RUN = "local_run"
"""The only field of a registration's `access` in a local run; its value is the name of the run."""
NO_RELAY = "no hybrid connection is set"
"""Why no debugger can attach."""
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
"""Variables that differ between any two torchrun jobs that are running on the same machine."""


def is_local(settings: DebugSettings, environ: Mapping[str, str]) -> bool:
    """Return whether a run has a monitor and no relay."""
    return bool(settings.monitor) and not settings.abort_on_timeout and not settings.access.selects_relay(environ)


def run_name(identity: ProcessIdentity, environ: Mapping[str, str], *, pid: int, directory: str) -> str:
    """Return a text that is the same for all ranks of a run on this node, whose processes share an agent.

    Two runs on one machine must not share an agent: each has its own outputs, and both may use the same logical ports.
    A process that no launcher has started is a run of its own.

    Args:
        identity: Identity of the process.
        environ: Its environment.
        pid: Its process id.
        directory: The directory in which it was started.
    """
    if identity.launcher == SINGLE:
        return str(pid)
    parts = (identity.launcher, identity.run_id, *(environ.get(name) for name in _RENDEZVOUS), directory)
    return " ".join(str(part) for part in parts)


# Hints for errors in a job's log; they name the job's equivalents of `relay-agent` options.
#
#     use --hc myhc          use --debug-relay-connection-name myhc
#     use --namespace        use RELAY_NAMESPACE
#
# A job started by `relay-agent run` has the options of `relay-agent`, so its hints are not changed, except for ports:
# the programs of a run share its options, and only a variable can differ between them.

_ARGUMENTS = {
    "--hc": "--debug-relay-connection-name",
    "--connection-string-secret": "--debug-relay-connection-string-secret",
}
_VARIABLES = {option.option: option.variable for option in ACCESS_OPTIONS if option.variable}
_ANOTHER_PORT = (
    "use 'relay-agent run --debug-port 6000 -- ...'; if one run has started both programs, set RELAY_DEBUG_PORT=6000 "
    "for one of them"
)
_OPTION = re.compile(r"(--[a-z-]+)(?: or ([A-Z_]+))?")


def hint_for_job(hint: str, environ: Mapping[str, str]) -> str:
    """Convert a hint from the agent to a hint for a job.

    Args:
        hint: A hint that may name options of `relay-agent`.
        environ: The environment of the job.
    """
    if environ.get(MODE):
        return hint.replace("give this process another --debug-port", _ANOTHER_PORT)
    return _OPTION.sub(_replace, hint)


def _replace(found: re.Match[str]) -> str:
    option, variable = found.groups()
    if argument := _ARGUMENTS.get(option):
        return found[0].replace(option, argument)
    other = _VARIABLES.get(option)
    return found[0] if other is None or variable not in {None, other} else other


# What a registered process leaves in the environment of the processes that it starts.

REGISTERED = "RELAY_DEBUG_REGISTERED"
"""The variable that a process sets when it registers; contains its pid, its port and its rank."""


def is_worker(environ: Mapping[str, str], pid: int, port: int) -> bool:
    """Return whether this process is a multiprocessing child of a registered process with the same port.

    It imports the program of that process anew, and with it a call that starts debugging. A child that has its own rank
    or port is not a worker.

    Args:
        environ: The environment of the process.
        pid: Its process id.
        port: The logical port that it would register.
    """
    parent, parent_port, _ = registered_ancestor(environ)
    return parent not in {"", str(pid)} and parent_port == str(port) and _is_child_of_multiprocessing()


def _is_child_of_multiprocessing() -> bool:
    """Whether multiprocessing has started this process; `parent_process` is set only after the program was imported."""
    if helper_reason(sys.orig_argv) == MULTIPROCESSING:
        return True
    if getattr(sys.modules.get("__mp_main__"), "__name__", "") == "__mp_main__":  # in other processes, an alias
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def register_environment(identity: ProcessIdentity, pid: int, base_port: int) -> dict[str, str]:
    """Return the environment variable that a process sets when it registers.

    Raises:
        ConfigurationError: the rank has no port.
    """
    return {REGISTERED: f"{pid} {logical_port(base_port, identity.rank)} {name_of_registered(identity)}"}


def registered_ancestor(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the pid, the port and the name of the registered process that started this one, or empty texts."""
    pid, _, rest = environ.get(REGISTERED, "").partition(" ")
    port, _, name = rest.partition(" ")
    return pid, port, name


def name_of_registered(identity: ProcessIdentity) -> str:
    """Return a name that is different for each rank and each restart of a rank."""
    return f"{identity.launcher}, {identity.label}, restart {identity.restart} of {identity.run_id}"
