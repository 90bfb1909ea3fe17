"""Patch that lets an editor decide, when it attaches, whether to follow child processes.

debugpy decides this when it starts, before an editor has attached: it replaces the functions that create processes, and
every Python child then starts with a debugger that waits for the editor. With this patch, the functions are replaced at
an `attach` with `"subProcess": true` and restored when that session ends, so in a job that is not being debugged,
children start as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay_agent.debugpy_internals.table import FOLLOWING

__all__ = ["install", "is_active", "prepare"]


class _Following:
    """Whether the editor follows the children of this process. Forked children inherit this."""

    is_on_demand = False
    """True if the functions that create processes were replaced for an editor rather than at the start of debugpy."""
    is_requested = False
    """True if the last editor that attached requested that children be followed."""
    reach_children: Callable[[], None] = staticmethod(lambda: None)
    """Makes relay-debug's patches take effect in children too."""
    is_attached: Callable[[], bool] = staticmethod(lambda: True)
    """Whether an editor is attached to this process."""


def prepare(reach_children: Callable[[], None], is_attached: Callable[[], bool]) -> None:
    """Set the callback for an editor that begins to follow children, and the check for an attached editor."""
    _Following.reach_children = staticmethod(reach_children)
    _Following.is_attached = staticmethod(is_attached)


def is_active() -> bool:
    """Return whether the debugger that is attached follows the processes that start now."""
    import pydevd  # noqa: PLC0415 - an attached debugger has imported it

    setup = pydevd.SetupHolder.setup or {}
    return bool(setup.get("multiprocess")) and (_Following.is_requested or not _Following.is_on_demand)


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    if not FOLLOWING.is_available():
        return
    import pydevd  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydev_bundle import pydev_monkey  # noqa: PLC0415
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    set_options = PyDevJsonCommandProcessor._set_debug_options  # noqa: SLF001 - called at each `attach`
    is_applied = pydev_monkey._get_apply_arg_patching  # noqa: SLF001 - read each time a process is created

    def set_options_and_follow(processor: Any, debugger: Any, arguments: Any, *others: Any, **named: Any) -> Any:
        """Handle the arguments of `attach`."""
        with FOLLOWING.guarded():
            _Following.is_requested = arguments.get("subProcess") is True
            if _Following.is_requested:
                follow()
        return set_options(processor, debugger, arguments, *others, **named)

    def follow() -> None:
        setup = pydevd.SetupHolder.setup
        if setup is None or setup.get(
            "multiprocess"
        ):  # the job has --debug-follow-children: children are followed anyway
            return
        _Following.is_on_demand = True
        setup["multiprocess"] = True  # for the children's own children
        pydev_monkey.patch_new_process_functions()
        _Following.reach_children()

    def is_applied_now() -> bool:
        """Return whether a process that is created now will be followed; after a debugger has ended, none is."""
        if pydevd.get_global_debugger() is None:
            return False
        if _Following.is_on_demand and not (_Following.is_requested and _Following.is_attached()):
            return False
        return bool(is_applied())

    PyDevJsonCommandProcessor._set_debug_options = set_options_and_follow  # noqa: SLF001 - see above
    pydev_monkey._get_apply_arg_patching = is_applied_now  # noqa: SLF001 - see above
