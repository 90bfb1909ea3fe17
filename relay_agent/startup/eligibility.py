"""Decides which processes of a `relay-agent run` job register as targets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from relay_agent.inject._relay_debug_programs import helper_reason, is_off, what_runs
from relay_agent.settings.environment import MODE, name_of_registered, registered_ancestor
from relay_agent.settings.ranks import identify

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
    parent, _, parent_name = registered_ancestor(environ)
    if parent and parent != str(pid) and not (identity.is_launched and name_of_registered(identity) != parent_name):
        return f"it was started by process {parent}, which is registered for {identity.label}"
    kind, name = what_runs(orig_argv)
    if kind == "script" and not identity.is_launched and _LIBRARY.search(name):
        return "its file belongs to a library, and no launcher gave it a rank"
    return None
