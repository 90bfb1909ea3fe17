"""Python's `breakpoint()` in a debug run: it stops in the debugger, waits for one or continues, and never starts pdb.

Without a debugger, Python starts pdb, which reads commands from stdin. The stdin of a job is usually empty: pdb then
raises `BdbQuit`, which ends the job.

    a debugger is attached              --> it stops at the next line
    none, --debug-ranks has this rank   --> waits for one, once; when nobody has come in time, later calls continue
    none, --debug-ranks does not        --> continues
    a child process, not registered     --> continues, unless a debugger follows it

Child processes that are started with exec do not have the hook of this process, so a variable names one for them.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from relay_agent.debuggee.debugger import debugger
from relay_agent.debuggee.process import DebuggedProcess, current
from relay_agent.debuggee.stopping import keep_uncompiled
from relay_agent.job.stderr import report_failure, write_line

VARIABLE = "PYTHONBREAKPOINT"
"""Python's variable with the function that `breakpoint()` calls; if the user has set it, it takes precedence."""
IN_CHILDREN = "relay_agent.debuggee.breakpoint_hook.in_child"
"""Its value for child processes. Python ignores it, with a warning, in a child that cannot import this package, and
debugpy's own function does not read it."""


def install() -> None:
    """Make `breakpoint()` use the debugger, here and in child processes, unless the job has its own hook."""
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _Hook()
        keep_uncompiled(_Hook.__call__)
        os.environ.setdefault(VARIABLE, IN_CHILDREN)


class _Hook:
    """The function that `breakpoint()` calls."""

    def __init__(self) -> None:
        self._is_over = False
        """True once a call has waited and no debugger has attached."""
        self._logged: set[str] = set()
        """The places at which a call has continued, which are logged once."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Stop in the caller, or continue; errors are reported, because the job's code must not see them."""
        if not sys.flags.ignore_environment and os.environ.get(VARIABLE, "") not in {"", IN_CHILDREN}:
            return sys.__breakpointhook__(*arguments, **named)
        try:
            self._stop(sys._getframe(1))  # noqa: SLF001 - the frame to stop in is the caller's
        except Exception as error:  # noqa: BLE001 - an exception would be raised in the job
            report_failure(f"{type(error).__name__}: {error}")
        return None

    def _stop(self, frame: FrameType) -> None:
        process = current()
        if debugger.is_attached():  # pydevd may follow a forked child
            debugger.break_at(frame)
        elif process is None:
            if DebuggedProcess.of_this_process is None:  # a forked child has its parent's, which may have logged it
                self._log(process, frame)
        elif self._is_over or not process.settings.ranks.includes(process.identity):
            self._log(process, frame)
        elif not process.hold_at(frame, "breakpoint()", process.settings.hold):
            self._is_over = not process.attaching.futile.is_set()  # otherwise, it has not waited
            self._log(process, frame)

    def _log(self, process: DebuggedProcess | None, frame: FrameType) -> None:
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119 - pathlib costs 10 ms
        if place not in self._logged:
            self._logged.add(place)
            line = f"breakpoint() at {place}: continuing, because no debugger is attached"
            if process is None:
                write_line(f"process {os.getpid()}: {line}")
            else:
                process.log(line)


in_child = _Hook()
"""The function that `breakpoint()` calls in child processes that were started with exec."""
