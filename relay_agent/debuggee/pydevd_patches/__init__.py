"""Monkey patches that correct pydevd, the part of debugpy that runs inside the job.

Each patch is a feature of `relay_agent.debugpy_internals.table`. A feature is switched off if this pydevd lacks a
function that it needs, and after the first error in the feature. Forked children inherit the patches; the directory
`child_plugin` patches children that are started with exec.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

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
from relay_agent.debuggee.pydevd_patches.child_processes import patch_class
from relay_agent.debugpy_internals import table
from relay_agent.debugpy_internals.feature import Feature
from relay_agent.job.gevent_originals import threading

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
    patches: list[tuple[Feature, Callable[[], None]]] = [
        (table.ADAPTER_USER, partial(adapter_user.install, is_child=is_child)),
        (table.CLOSED_DESCRIPTORS, robustness.install_closed_descriptors),  # the last patch of `pydevd.start_client`
        (table.REMOVED_DIRECTORY, robustness.install_removed_directory),
        (table.EXITING, robustness.install_exiting),
        (table.SENDING, sending.install),
        (table.WAKING, stopped_threads.install_waking),
        (table.CONTINUING, partial(patch_class, "ThreadsSuspendedSingleNotification", stopped_threads.patch_continue)),
        (table.INTERRUPTED, partial(patch_class, "PyDB", stopped_threads.patch_interrupted)),
        (table.TORCH_STATES, partial(patch_class, "PyDB", stopped_threads.patch_torch_states)),
        (table.CHILD_WAIT, partial(patch_class, "PyDB", child_processes.patch_child_wait)),
        (table.FOLLOWING, child_processes.install_following),
        (table.UNREACHED, unreached_report.install),
        (table.UNSUPPORTED, sending.install_rejection),
        (table.DATA_BREAKPOINTS, data_breakpoints.install),
        (table.DATA_BREAKPOINTS, partial(patch_class, "PyDB", data_breakpoints.patch_wait)),
        # After all patches of the same functions:
        (table.FLOODS, partial(relay_debug_output.install, is_child=is_child)),
    ]
    for feature, patch in patches:
        if feature.is_available():
            patch()
    if "relay_agent.push.sources" in sys.modules:  # code was replaced before debugpy was started
        from relay_agent.push import sources  # noqa: PLC0415 - already imported

        sources.install()
    if values and table.SHOWING.is_available():
        from relay_agent.debuggee.pydevd_patches import showing  # noqa: PLC0415 - in debug runs only

        showing.install()
