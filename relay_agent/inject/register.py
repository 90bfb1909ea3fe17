"""Registers a process of a `relay-agent run` job: decided in `sitecustomize`, done just before its program begins."""

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
"""Whether `register_process` has run: with two installations on PYTHONPATH it is called twice."""


def register_process(*, is_child: bool) -> None:
    """Let this process register before its program begins, if that is one to debug; some wait then for a debugger.

    Nothing is raised, for nobody could do more than report it.

    Args:
        is_child: Whether it is a child of multiprocessing: it may be a rank whose peers are held, but no target.
    """
    global _done  # noqa: PLW0603 - see there
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
    except Exception as error:  # noqa: BLE001 - whatever it is, the job is worth more than its debugger
        report_failure(f"{type(error).__name__}: {error}")


def _raise_timeouts(settings: DebugSettings) -> None:
    """Raise them even where no debugger can come: a peer may be held."""
    if settings.timeouts is not None:
        from relay_agent.collective_timeouts import raise_timeouts  # noqa: PLC0415 - if asked for

        raise_timeouts(settings.timeouts)


def _start(settings: DebugSettings) -> None:
    """Register, and wait; a process that is asked to end here ends at once."""
    try:
        from relay_agent.api import start_debugging  # noqa: PLC0415 - as late as the rest of what is needed then

        start_debugging(settings)
    except SystemExit as wish:
        _leave(wish)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells look at how an interrupted program ends
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - as above
        report_failure(f"{type(error).__name__}: {error}")


def _leave(wish: SystemExit) -> NoReturn:
    """End with the wished status: where no program runs yet, Python would take SystemExit for a failed import."""
    if isinstance(wish.code, str):
        write_line(wish.code)
    atexit._run_exitfuncs()  # noqa: SLF001 - this process leaves its agent there
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(wish.code if isinstance(wish.code, int) else int(wish.code is not None))
