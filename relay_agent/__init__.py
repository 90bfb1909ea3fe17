"""Remote debugging for Python jobs on machines that accept no incoming connections: the library that the job imports.

    import relay_agent

    relay_agent.start_remote_debugging_from_args()

With `--is-debug true --debug-relay-connection-name myhc` on its command line, the job registers with the node's agent,
a small process that dials out to Azure Relay, and waits for a debugger. Without these arguments, the call does nothing
and takes no time. debugpy is imported when a debugger attaches; network packages are never imported. If debugging
fails, the job reports that on stderr and runs as usual: none of these functions raises an exception or hangs because of
the failure.
"""

from relay_agent.api import (
    breakpoint,  # noqa: A004 - intended: a remote version of Python's breakpoint()
    hold_on_crash,
    present,
    start_remote_debugging,
    start_remote_debugging_from_args,
    stats,
)
from relay_agent.settings.arguments import add_debug_arguments

__all__ = [
    "add_debug_arguments",
    "breakpoint",
    "hold_on_crash",
    "present",
    "start_remote_debugging",
    "start_remote_debugging_from_args",
    "stats",
]
