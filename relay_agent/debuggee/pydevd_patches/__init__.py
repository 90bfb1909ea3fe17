"""Monkey patches that correct pydevd, the part of debugpy that runs inside the job.

Each patch is a feature of `relay_agent.debugpy_internals.table`. A feature is switched off if this pydevd lacks a
function that it needs, and after the first error in the feature. Forked children inherit the patches; the directory
`child_plugin` patches children that are started with exec.
"""

from __future__ import annotations

import sys

from relay_agent.debuggee.pydevd_patches import (
    adapter_user,
    child_processes,
    data_breakpoints,
    relay_debug_output,
    robustness,
    sending,
    stopped_threads,
    unreached_report,
)
from relay_agent.job.gevent_originals import threading

__all__ = ["VALUES_VARIABLE", "install"]

VALUES_VARIABLE = "RELAY_DEBUG_VALUES"
"""The variable of the setting `--debug-values`; also set for children if this process got the setting from another
source."""

_first_call = threading.Lock()
"""Acquired by the first call to `install`, and never released."""


def install(*, values: bool = True, is_child: bool = False) -> None:
    """Patch pydevd in this process and its forked children, once; the patches are never undone.

    Args:
        values: Whether to change how values are shown.
        is_child: Whether the debugger has followed a parent into this process.
    """
    # In a child whose program is pydevd's file, a patch imports pydevd once more, as a module. pydevd then calls its
    # extensions again, including the one in `child_plugin`, which calls this function again.
    if not _first_call.acquire(blocking=False):
        return
    adapter_user.install(is_child=is_child)
    robustness.install()
    sending.install()
    stopped_threads.install()
    child_processes.install_child_wait()
    child_processes.install_following()
    unreached_report.install()
    sending.install_rejection()
    data_breakpoints.install()
    relay_debug_output.install(is_child=is_child)
    if "relay_agent.push.sources" in sys.modules:  # code was replaced before debugpy was started
        from relay_agent.push import sources  # noqa: PLC0415 - already imported

        sources.install()
    if values:
        from relay_agent.debuggee.pydevd_patches import showing  # noqa: PLC0415 - in debug runs only

        showing.install()
