"""Patch that lets a job continue if one of its signal handlers raises an exception while the job is stopped.

Python calls the handler in the stopped main thread, and the exception leaves pydevd's wait and its trace function, into
the job's code, as it would without a debugger. pydevd reports that the job continues, but keeps all threads marked as
stopped; and up to Python 3.11, Python removes a trace function that raises. The main thread would then never stop
again, although `continue` and `pause` are answered.
"""

from __future__ import annotations

from typing import Any

from relay_agent.debuggee import tracing
from relay_agent.debuggee.pydevd_patches.child_wait import loaded_pydevds
from relay_agent.debugpy_internals.table import INTERRUPTED

__all__ = ["install"]


def install() -> None:
    """Patch `PyDB.do_wait_suspend` in this process and its forked children."""
    if INTERRUPTED.is_available():
        for each in {module.PyDB for module in loaded_pydevds()}:
            _patch(each)


def _patch(debugger_class: Any) -> None:
    from _pydevd_bundle import pydevd_thread_lifecycle as lifecycle  # noqa: PLC0415 - in debug runs only

    wait = debugger_class.do_wait_suspend

    def wait_or_resume(debugger: Any, *arguments: Any, **named: Any) -> None:
        """Wait while the thread is stopped; resume all threads if an exception ends the wait."""
        try:
            wait(debugger, *arguments, **named)
        except BaseException:
            if not INTERRUPTED.is_off:
                with INTERRUPTED.guarded():
                    lifecycle.resume_threads("*")
                    tracing.retrace_main_thread()
            raise

    debugger_class.do_wait_suspend = wait_or_resume
