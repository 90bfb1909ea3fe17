"""Registration of a process of a `relay-agent run` job, just before its program starts; called by `sitecustomize`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

from relay_agent.inject.eligibility import register_environment, should_register
from relay_agent.inject.startup_hook import call_before_program
from relay_agent.settings.environment import from_environment
from relay_agent.settings.model import DebugSettings
from relay_agent.stderr import report_failure, write_line
from relay_core.errors import RelayDebugError

__all__ = ["register_process"]

_done = False
"""True if `register_process` has run; with two installations on PYTHONPATH, it is called twice."""


def register_process(*, is_child: bool) -> None:
    """Register this process before its program starts, if it should be debugged; some ranks then wait for a debugger.

    Errors are reported on stderr and not raised.

    Args:
        is_child: True for a child of multiprocessing. It is not a target, but its timeouts are raised, because it may
            be a rank whose peers are held.
    """
    global _done  # noqa: PLW0603 - see its docstring
    if _done:
        return
    _done = True
    try:
        settings = from_environment(os.environ)
        if settings is None:
            return
        if is_child:
            _raise_timeouts(settings)
        elif should_register(os.environ, sys.orig_argv, os.getpid()) is None:
            _raise_timeouts(settings)
            os.environ.update(register_environment(os.environ, os.getpid()))
            call_before_program(lambda: _start(settings))
    except RelayDebugError as error:
        report_failure(error)
    except Exception as error:  # noqa: BLE001 - no error in the debugger may stop the job
        report_failure(f"{type(error).__name__}: {error}")


def _raise_timeouts(settings: DebugSettings) -> None:
    """Raise the timeouts of collective operations even if this process cannot be debugged: a peer may be held."""
    if settings.timeouts:
        from relay_agent.collective_timeouts import raise_timeouts  # noqa: PLC0415 - only if needed

        raise_timeouts(settings.timeouts)


def _start(settings: DebugSettings) -> None:
    """Register and wait for a debugger; exit immediately on SystemExit and KeyboardInterrupt."""
    try:
        from relay_agent.api import start_debugging  # noqa: PLC0415 - its imports are needed only now

        start_debugging(settings)
    except SystemExit as request:
        _exit(request)
    except KeyboardInterrupt:
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # shells check that an interrupted program was terminated by the signal
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - as above
        report_failure(f"{type(error).__name__}: {error}")


def _exit(request: SystemExit) -> NoReturn:
    """Exit with the requested status. Before the program starts, Python would treat SystemExit as a failed import."""
    if isinstance(request.code, str):
        write_line(request.code)
    atexit._run_exitfuncs()  # noqa: SLF001 - an exit function deregisters this process from its agent
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(request.code if isinstance(request.code, int) else int(request.code is not None))
