"""Registration of a process of a `relay-agent run` job, just before its program starts; called by `sitecustomize`."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import stat
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, NoReturn

from relay_agent.inject._relay_debug_programs import what_runs
from relay_agent.job.stderr import as_own_error, is_of_import, report_failure, write_line
from relay_agent.settings.environment import from_environment, register_environment
from relay_agent.settings.model import DebugSettings
from relay_agent.settings.ranks import identify
from relay_agent.startup.eligibility import should_register

# Hook that runs a function after Python has initialized and before its program starts.
#
# `sitecustomize` is too early to wait for a debugger: `site` is still being imported, so a thread that imports `site`,
# as debugpy's does, blocks until the main thread has finished that import. A process that waited for its debugger
# inside `sitecustomize` would wait without limit.
#
# Python has no callback for the right moment. But before it runs a program, it calls two extension points while it
# holds no import lock (Modules/main.c). It calls the hooks in `sys.path_hooks` to determine whether a script is a
# directory or an archive. For directories, archives and modules, it calls functions of `runpy` to find the code.

_SEARCHES = ("_get_module_details", "_get_main_module_details")
"""The functions that `runpy._run_module_as_main` calls first, for `-m` and for a directory or an archive."""


def call_before_program(act: Callable[[], None], *, waits: bool) -> None:
    """Call a function in the main thread, once, just before the program of this process starts.

    Args:
        act: The function. It should not raise, because Python would report the exception as a missing program.
        waits: Whether the function waits, and is therefore not called if the program cannot start.
    """
    kind, name = what_runs(sys.orig_argv)
    gate = _Gate(act, os.path.abspath(name), waits=waits)  # noqa: PTH100 - pathlib costs 10 ms here
    if kind == "script":
        sys.path_hooks.append(gate)
    if not (kind == "script" and name.endswith(".py")):
        gate.guard_runpy()


class _Gate:
    """A path hook and a wrapper for functions of `runpy`; it calls `act` and then lets Python continue."""

    def __init__(self, act: Callable[[], None], script: str, *, waits: bool) -> None:
        self._act = act
        self._script = script
        self._waits = waits
        self._searches: dict[str, Callable[..., Any]] = {}
        self._opened = False

    def __call__(self, path: str) -> Any:  # None, which typeshed does not allow a hook to return
        """Handle a call as a path hook: call `act` for the script, and report that no path importer exists."""
        if os.path.abspath(path) == self._script:  # noqa: PTH100 - as above
            is_last = self._is_last()
            if not self._waits or _can_start(path):
                self._open()
            _trace_program()
            if is_last:
                # None means the same as ImportError, which a debugger that is now attached would show as uncaught.
                return None
        raise ImportError

    def guard_runpy(self) -> None:
        """Wrap the functions of `runpy` that search for the program."""
        import runpy  # noqa: PLC0415 - Python imports it anyway in this case

        for name in _SEARCHES:
            self._searches[name] = getattr(runpy, name)
            setattr(runpy, name, self._search(name))

    def _search(self, name: str) -> Callable[..., Any]:
        def search(*args: Any) -> Any:
            if self._waits and isinstance(args[0], str) and not _can_start(_file_of(args[0])):
                found = self._searches[name](*args)  # raises what Python reports, or finds the module in another way
                self._open()
                return found
            self._open()
            return self._searches[name](*args)

        return search

    def _is_last(self) -> bool:
        """Whether this is the last path hook."""
        return sys.path_hooks[-1:] == [self]

    def _open(self) -> None:
        # Python reads the number of hooks before it calls them, so only the last one can be removed.
        if self._is_last():
            sys.path_hooks.pop()
        for name, search in self._searches.items():
            setattr(sys.modules["runpy"], name, search)
        if not self._opened:
            self._opened = True
            self._act()


def _can_start(file: str) -> bool:
    """Return False if a file is missing or has a syntax error, or contains something else, such as an archive.

    Python would report the error only after the wait for a debugger.
    """
    try:
        if file.endswith(".pyc") or not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - as above
            return True  # a pipe can be read only once
        with open(file, "rb") as script, warnings.catch_warnings():  # noqa: PTH123 - as above
            warnings.simplefilter("ignore")
            compile(script.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return True


def _file_of(module: str) -> str:
    """Return the file that `python -m` runs, found without importing the packages; "" if it is not found."""
    names, locations, file = module.split("."), None, ""
    for number in range(len(names)):
        spec = PathFinder.find_spec(".".join(names[: number + 1]), locations)
        if spec is None:
            return ""
        locations, file = spec.submodule_search_locations, spec.origin or ""
    return file if locations is None else _file_of(f"{module}.__main__")


def _trace_program() -> None:
    """Make a debugger that has attached in the meantime report the program's uncaught exceptions."""
    tracing = sys.modules.get("relay_agent.debuggee.tracing")
    if tracing is not None:
        tracing.trace_program()


@functools.cache
def register_process(*, is_child: bool) -> None:
    """Register this process before its program starts, if it should be debugged; some ranks then wait for a debugger.

    Errors are reported on stderr and not raised. With two installations on PYTHONPATH, a second call has no effect.

    Args:
        is_child: True for a child of multiprocessing. It is not a target, but its timeouts are raised, because it may
            be a rank whose peers are held.
    """
    try:
        settings = from_environment(os.environ)
        if settings is None:
            return
        if is_child:
            _raise_timeouts(settings)
        elif should_register(os.environ, sys.orig_argv, os.getpid()) is None:
            _raise_timeouts(settings)
            identity = identify(os.environ)
            os.environ.update(register_environment(identity, os.getpid(), settings.port))
            waits = settings.wait > 0 and settings.ranks.includes(identity)
            call_before_program(lambda: _start(settings), waits=waits)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - no error in the debugger may stop the job
        report_failure(as_own_error(error))


def _raise_timeouts(settings: DebugSettings) -> None:
    """Raise the timeouts of collective operations even if this process cannot be debugged: a peer may be held."""
    if settings.timeouts:
        from relay_agent.job.collective_timeouts import raise_timeouts  # noqa: PLC0415 - only if needed

        raise_timeouts(settings.timeouts)


def _start(settings: DebugSettings) -> None:
    """Register and wait for a debugger; exit immediately on SystemExit and KeyboardInterrupt."""
    try:
        from relay_agent.api import start_debugging  # noqa: PLC0415 - its imports are needed only now

        start_debugging(settings)
    except SystemExit as request:
        if not is_of_import(request):
            _exit(request)
        report_failure(f"SystemExit: {request}")
    except KeyboardInterrupt:
        # Shells check that an interrupted program was terminated by the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
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
