"""Decides which processes of a `relay-agent run` job register as targets.

RELAY_DEBUG_REGISTERED   set by a registered process for its children; contains its pid and rank
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from relay_agent.inject._relay_debug_programs import helper_reason, is_off, what_runs
from relay_agent.ranks import SINGLE, ProcessIdentity, identify
from relay_agent.settings.environment import MODE

__all__ = ["REGISTERED", "register_environment", "should_register"]

REGISTERED = "RELAY_DEBUG_REGISTERED"

_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\]")


def should_register(environ: Mapping[str, str], orig_argv: list[str], pid: int) -> str | None:
    """Return why a process does not register as a target, or None if it does.

    A child of a rank that inherits the rank's variables is a helper of that rank. A child of a registered process with
    a different rank (started by Lightning or a custom launcher) is a target. So is a program that replaces a registered
    process (exec), because it has the same pid.

    Args:
        environ: The environment of the process.
        orig_argv: Its `sys.orig_argv`.
        pid: Its process id.
    """
    if is_off(environ.get(MODE, "")):
        return "debugging is off"
    if reason := helper_reason(orig_argv):
        return reason
    identity = identify(environ)
    has_rank = identity.launcher != SINGLE and not identity.node_level
    parent, _, parent_name = environ.get(REGISTERED, "").partition(" ")
    if parent and parent != str(pid) and not (has_rank and _name(identity) != parent_name):
        return f"it was started by process {parent}, which is registered for {identity.label}"
    kind, name = what_runs(orig_argv)
    if kind == "script" and not has_rank and _LIBRARY.search(name):
        return "its file belongs to a library, and no launcher gave it a rank"
    return None


def register_environment(environ: Mapping[str, str], pid: int) -> dict[str, str]:
    """Return the environment variable that a process sets when it registers."""
    return {REGISTERED: f"{pid} {_name(identify(environ))}"}


def _name(identity: ProcessIdentity) -> str:
    """Return a name that is different for each rank and each restart of a rank."""
    return f"{identity.launcher}, {identity.label}, restart {identity.restart} of {identity.run_id}"
