"""Patches for child processes of a debugged process: how long they wait, and whether they are followed."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay_agent.debuggee.detaching import is_abandoned
from relay_agent.debugpy_internals.table import CHILD_WAIT, FOLLOWING
from relay_agent.job.gevent_originals import time
from relay_agent.job.paths import in_front
from relay_agent.job.stderr import write_line

# Patch that limits how long a child of a debugged process waits for its own debug session.
#
# debugpy announces such a child to the debugger of its parent, and the child does not run until an editor has attached
# to it. If the editor disconnected before that or ignored the announcement, the child would wait without limit. With
# this patch, it waits for a limited time, and only while an editor is connected to debugpy's adapter. An editor can
# still attach to it later.

PORT_VARIABLE = "RELAY_DEBUG_ADAPTER_PORT"
"""Set for children: the port of debugpy's adapter for editors; not set if the job itself has connected to an editor."""

LIMIT_VARIABLE = "DEBUGPY_PROCESS_SPAWN_TIMEOUT"
"""debugpy's variable for the time to wait for a process."""
LIMIT = 60.0
"""debugpy's default for this time, in seconds."""
POLL_INTERVAL = 0.02
"""Seconds between two checks for the editor's breakpoints, as in pydevd."""
CONNECTION_INTERVAL = 0.5
"""Seconds between two checks of whether an editor is connected."""
MISSES = 4
"""Number of consecutive checks that must find no editor before the child runs: an editor may close one connection
before it opens the next."""


def patch_child_wait(debugger_class: Any) -> None:
    """Patch `PyDB.wait_for_ready_to_run` in this process and its forked children."""
    wait = debugger_class.wait_for_ready_to_run
    debugger_class.wait_for_ready_to_run = functools.partialmethod(_wait_or, wait)


def loaded_pydevds() -> list[Any]:
    """Return the `pydevd` module, and `__main__` too if this process runs pydevd's file as its program."""
    import pydevd  # noqa: PLC0415 - in debug runs only

    return [module for module in (pydevd, sys.modules.get("__main__")) if hasattr(module, "PyDB")]


def patch_class(name: str, patch: Callable[[Any], None]) -> None:
    """Patch the class of this name; there are two if this process runs pydevd's file as its program."""
    for each in {getattr(module, name) for module in loaded_pydevds()}:
        patch(each)


def _wait_or(debugger: Any, wait: Callable[[Any], None]) -> None:
    """Wait with a time limit; if that fails, wait as pydevd does."""
    with CHILD_WAIT.guarded():
        _wait(debugger)
        return
    wait(debugger)


def _wait(debugger: Any) -> None:
    """Wait until the editor has sent its breakpoints, the adapter has disconnected, or no editor is expected."""
    limit = float(os.environ.get(LIMIT_VARIABLE) or LIMIT)
    deadline = time.monotonic() + limit
    editors = _Editors(int(os.environ.get(PORT_VARIABLE) or 0))
    while not debugger.ready_to_run and not debugger.pydb_disposed:
        has_waited = time.monotonic() >= deadline
        if has_waited or editors.have_left():
            left = "the debugger disconnected before it attached to this process"
            reason = f"no debugger attached within {limit:g} s" if has_waited else left
            write_line(f"process {os.getpid()}: {reason}; continuing")
            break
        debugger.process_internal_commands()
        time.sleep(POLL_INTERVAL)
    debugger.ready_to_run = True


class _Editors:
    """The editors that are connected to a port of debugpy's adapter; the port is 0 if it is unknown."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._next_check = 0.0
        self._misses = 0

    def have_left(self) -> bool:
        """Return whether no editor has been connected for a while, as far as this system shows connections."""
        if self._port and time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CONNECTION_INTERVAL
            self._misses = self._misses + 1 if is_abandoned(self._port) else 0
        return self._misses >= MISSES


# Patch that lets an editor decide, when it attaches, whether to follow child processes.
#
# debugpy decides this when it starts, before an editor has attached: it replaces the functions that create processes,
# and every Python child then starts with a debugger that waits for the editor. With this patch, the functions are
# replaced at an `attach` with `"subProcess": true` and restored when that session ends, so in a job that is not being
# debugged, children start as usual.


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


def follow_into_children(port: int | None) -> None:
    """Put the plugin that patches pydevd on the PYTHONPATH of the Python processes that this one starts.

    Args:
        port: The port of debugpy's adapter; None if this process has connected to an editor.
    """
    os.environ.pop(PORT_VARIABLE, None)
    if port is not None:
        os.environ[PORT_VARIABLE] = str(port)
    os.environ["PYTHONPATH"] = in_front(Path(__file__).with_name("child_plugin"), os.environ.get("PYTHONPATH"))


def follow_on_demand(port: int | None, is_attached: Callable[[], bool]) -> None:
    """Let an editor that attaches decide whether child processes are followed.

    Args:
        port: As for `follow_into_children`.
        is_attached: Returns whether an editor is attached.
    """
    _Following.reach_children = staticmethod(functools.partial(follow_into_children, port))
    _Following.is_attached = staticmethod(is_attached)


def is_active() -> bool:
    """Return whether the debugger that is attached follows the processes that start now."""
    import pydevd  # noqa: PLC0415 - an attached debugger has imported it

    setup = pydevd.SetupHolder.setup or {}
    return bool(setup.get("multiprocess")) and (_Following.is_requested or not _Following.is_on_demand)


def install_following() -> None:
    """Patch pydevd in this process and its forked children."""
    import pydevd  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydev_bundle import pydev_monkey  # noqa: PLC0415
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    set_options = PyDevJsonCommandProcessor._set_debug_options  # noqa: SLF001 - called at each `attach`
    is_applied = pydev_monkey._get_apply_arg_patching  # noqa: SLF001 - read each time a process is created

    def set_options_and_follow(processor: Any, debugger: Any, arguments: Any, *others: Any, **named: Any) -> Any:
        """Handle the arguments of `attach`."""
        with FOLLOWING.guarded():
            _Following.is_requested = arguments.get("subProcess") is True
            setup = pydevd.SetupHolder.setup
            # With --debug-follow-children, children are followed anyway.
            if _Following.is_requested and setup is not None and not setup.get("multiprocess"):
                _Following.is_on_demand = True
                setup["multiprocess"] = True  # for the children's own children
                pydev_monkey.patch_new_process_functions()
                _Following.reach_children()
        return set_options(processor, debugger, arguments, *others, **named)

    def is_applied_now() -> bool:
        """Return whether a process that is created now will be followed; after a debugger has ended, none is."""
        if pydevd.get_global_debugger() is None:
            return False
        if _Following.is_on_demand and not (_Following.is_requested and _Following.is_attached()):
            return False
        return bool(is_applied())

    PyDevJsonCommandProcessor._set_debug_options = set_options_and_follow  # noqa: SLF001 - see above
    pydev_monkey._get_apply_arg_patching = is_applied_now  # noqa: SLF001 - see above
