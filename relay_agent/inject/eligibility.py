"""Which processes of a `relay-agent run` job register as targets, and how their children find that out.

RELAY_DEBUG_REGISTERED   set by a process that has registered: its pid and rank, for its children to see
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from relay_agent.inject._relay_debug_programs import helper_reason, is_off, what_runs
from relay_agent.ranks.identity import SINGLE, identify
from relay_agent.settings.environment import MODE

__all__ = ["REGISTERED", "register_environment", "should_register"]

REGISTERED = "RELAY_DEBUG_REGISTERED"

_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\]")


def should_register(environ: Mapping[str, str], orig_argv: list[str], pid: int) -> str | None:
    """Return why a process is not a target of its own, or None if it is one and registers.

    What a rank starts inherits the rank's variables, and is a helper of that rank. What a registered process starts
    with a rank of its own (Lightning, a launcher written by hand) is a target. So is what a registered process turns
    into by exec: it has the same pid.

    Args:
        environ: Of the process.
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
    if parent and parent != str(pid) and not (has_rank and _name(environ) != parent_name):
        return f"it was started by process {parent}, which is registered for {identity.label}"
    kind, name = what_runs(orig_argv)
    if kind == "script" and not has_rank and _LIBRARY.search(name):
        return "its file belongs to a library, and no launcher gave it a rank"
    return None


def register_environment(environ: Mapping[str, str], pid: int) -> dict[str, str]:
    """Return the variable that a process sets as it registers."""
    return {REGISTERED: f"{pid} {_name(environ)}"}


def _name(environ: Mapping[str, str]) -> str:
    """Return what distinguishes ranks, and one rank's restarts."""
    identity = identify(environ)
    return f"{identity.launcher}, {identity.label}, restart {identity.restart} of {identity.run_id}"
