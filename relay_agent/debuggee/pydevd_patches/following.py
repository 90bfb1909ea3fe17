"""Patch with which an editor decides whether it follows child processes, when it attaches.

debugpy decides that when it starts, before any editor is known: it replaces the functions that create processes, and
every Python child then begins with a debugger that waits for the editor. Here this happens at an `attach` with
`"subProcess": true`, and ends with that session: in a job that nobody debugs, children start as they always do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["install", "prepare"]


class _Following:
    """Whether the editor follows the children of this process. Forked children inherit this."""

    is_on_demand = False
    """True if the functions that create processes were replaced for an editor, and not at the start of debugpy."""
    is_requested = False
    """True if the last editor that attached follows children."""
    reach_children: Callable[[], None] = staticmethod(lambda: None)
    """Makes this project's patches take effect in children, too."""


def prepare(reach_children: Callable[[], None]) -> None:
    """Set what is called when an editor begins to follow children."""
    _Following.reach_children = staticmethod(reach_children)


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    try:
        from _pydev_bundle import pydev_monkey  # noqa: PLC0415 - in debug runs only, as the rest
        from _pydevd_bundle.pydevd_constants import get_global_debugger  # noqa: PLC0415
        from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

        on_attach = PyDevJsonCommandProcessor.on_attach_request
        is_applied = pydev_monkey._get_apply_arg_patching  # noqa: SLF001 - read at each creation of a process
        replace_functions = pydev_monkey.patch_new_process_functions
    except (ImportError, AttributeError):  # pydevd's internals may change; then only the job's own option has an effect
        return

    def on_attach_request(processor: Any, debugger: Any, request: Any) -> Any:
        """Handle `attach`; `kwargs` are its arguments."""
        _Following.is_requested = request.arguments.kwargs.get("subProcess") is True
        if _Following.is_requested:
            follow()
        return on_attach(processor, debugger, request)

    def follow() -> None:
        import pydevd  # noqa: PLC0415 - likewise

        setup = pydevd.SetupHolder.setup
        if setup is None or setup.get("multiprocess"):  # the job's option: children are followed anyway
            return
        _Following.is_on_demand = True
        setup["multiprocess"] = True  # for the children's own children
        replace_functions()
        _Following.reach_children()

    def is_applied_now() -> bool:
        """Return whether a process that is created now will be followed."""
        if _Following.is_on_demand:
            debugger = get_global_debugger()
            if not _Following.is_requested or debugger is None or not debugger.is_attached():
                return False
        return bool(is_applied())

    PyDevJsonCommandProcessor.on_attach_request = on_attach_request
    pydev_monkey._get_apply_arg_patching = is_applied_now  # noqa: SLF001 - see above
