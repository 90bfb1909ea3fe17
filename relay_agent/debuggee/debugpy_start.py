"""Starting debugpy in this process: its configuration, and workarounds for its private functions.

This module uses debugpy's internals (`debugpy.server.api`, `pydevd`). The states of the debugger are in `debugger`,
and `adapter_start` starts its adapter.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from relay_agent.debuggee import gevent_support, pydevd_patches
from relay_agent.debuggee.adapter_start import adapter_environment, own_adapter, replaced
from relay_agent.debuggee.pydevd_patches.relay_debug_output import OutputQueue
from relay_agent.debugpy_internals import table
from relay_agent.job.gevent_originals import is_patched_by_eventlet, is_patched_by_gevent, subprocess_in_use, threading
from relay_agent.job.stderr import write_line
from relay_agent.node.in_job.own_python import find_python
from relay_core.errors import RelayDebugError

_old_tracers: list[object] = []
"""Tracers of ended debuggers. A frame refers to such a tracer until the frame is traced again, and pydevd keeps these
tracers too."""


def load(*, follow_children: bool, values: bool = True) -> ModuleType:
    """Import and configure debugpy, ready to listen or to connect.

    Args:
        follow_children: Whether debugpy follows child processes from the start.
        values: Whether to change how values are shown; the first call decides.

    Raises:
        ImportError: debugpy is missing.
        ValueError: debugpy rejects the configuration.
        RelayDebugError: debugpy would end this process.
    """
    _require_native_threads()
    # debugpy reads this when it is imported; its warning about frozen modules concerns the standard library only.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    import debugpy  # noqa: PLC0415 - in debug runs only, here and below

    with gevent_support.importing(), _own_breakpoint_hook(), _without_child():
        from debugpy.server import api  # noqa: PLC0415
    if table.JOB_LISTEN.is_available() and not isinstance(api.listen, _Listen):
        api.listen = _Listen(api.listen)
    gevent_support.install()
    _skip_description()
    debugpy.configure(subProcess=follow_children, python=find_python(), pythonEnv=adapter_environment())
    if table.STATE.is_available() and table.RESTART.is_available():
        # Reset the state left by an adapter that has exited or by the parent of a forked child:
        with table.RESTART.guarded():
            api.listen.called = False
            sys.modules["pydevd"].SetupHolder.setup = None  # imported by debugpy.server.api
    _resume_threads()
    pydevd_patches.install(values=values)  # before pydevd has a connection
    return debugpy


def _without_child() -> contextlib.AbstractContextManager[None]:
    """Prevent debugpy's log, while it is imported, from describing the platform: this starts `uname` as a child."""
    thread, describe = threading.get_ident(), platform.platform

    def skip(*arguments: Any, **options: Any) -> str:
        return "" if threading.get_ident() == thread else describe(*arguments, **options)

    return replaced(platform, "platform", skip)


@contextlib.contextmanager
def _own_breakpoint_hook() -> Iterator[None]:
    """Keep relay_agent's hook for `breakpoint()`, if it is in use; pydevd sets its own when it is imported."""
    hook = sys.breakpointhook
    try:
        yield
    finally:  # after a failed import, pydevd's raises an error
        if type(hook).__module__ == "relay_agent.debuggee.breakpoint_hook":
            sys.breakpointhook = hook


def _require_native_threads() -> None:
    """Raise an error if debugpy's threads would switch to the job's greenlets, or use locks that greenlets hold."""
    if is_patched_by_eventlet():
        raise RelayDebugError(
            f"this job uses eventlet.monkey_patch(), and {gevent_support.EVENTLET}",
            hint=gevent_support.EVENTLET_WAY_OUT,
        )
    if is_patched_by_gevent() and "pydevd" in sys.modules and not gevent_support.in_use():
        raise RelayDebugError(
            "gevent patched the standard library after debugpy had been imported", hint=gevent_support.GEVENT_WAY_OUT
        )


def _resume_threads() -> None:
    """Detach all threads from an ended debugger, which pydevd does not do when an adapter is killed.

    Threads that were stopped or were being stepped continue to run, but stay marked as stopped. They would therefore
    stop immediately, at any line, for the next debugger, before that debugger has attached and can receive an event. Up
    to Python 3.11, each thread also keeps the function that reports its uncaught exceptions, and the ended debugger
    with it.
    """
    if not table.STOPPED_THREADS.is_available():
        return
    from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info  # noqa: PLC0415 - as above
    from _pydevd_bundle.pydevd_thread_lifecycle import internal_run_thread  # noqa: PLC0415

    with table.STOPPED_THREADS.guarded():
        for thread in threading.enumerate():
            if (info := getattr(thread, "additional_info", None)) is not None:
                internal_run_thread(thread, set_additional_thread_info)  # what pydevd does when a debugger detaches
                _old_tracers.append(info.top_level_thread_tracer_unhandled)
                info.top_level_thread_tracer_unhandled = None  # pydevd creates a new one


def listen(debugpy: ModuleType) -> int:
    """Make debugpy listen on a free port of 127.0.0.1 that is restricted to this user, and return the port."""
    OutputQueue.expects_receipts = True
    with subprocess_in_use(), own_adapter(), _without_pause():
        port = int(debugpy.listen(("127.0.0.1", 0))[1])
    function = sys.modules["debugpy.server.api"].listen
    if isinstance(function, _Listen):
        function.port = port
    return port


# What `debugpy.listen` spends time on without any use, while an editor waits. debugpy's adapter describes its
# environment as well; `adapter_guard` prevents that.


@functools.cache
def _skip_description() -> None:
    """Describe the environment in debugpy's log only if the log is on; the replacement stays.

    debugpy first reads the metadata of all installed packages: 95 ms for 117 packages, during which it holds the GIL.
    """
    if table.STARTING.is_available():
        log: Any = sys.modules["debugpy.common.log"]
        describe = log.describe_environment
        log.describe_environment = lambda header: describe(header) if "info" in log._levels else None  # noqa: SLF001 - as in the table


def _without_pause() -> contextlib.AbstractContextManager[None]:
    """Let pydevd continue in this thread as soon as it has connected.

    It would sleep for 0.1 s to "give threads time to start", although `Thread.start` has waited for that.
    """
    if not table.STARTING.is_available():
        return contextlib.nullcontext()
    pydevd: Any = sys.modules["pydevd"]
    thread, time = threading.get_ident(), pydevd.time

    def sleep(seconds: float) -> None:
        if threading.get_ident() != thread:
            time.sleep(seconds)

    return replaced(pydevd, "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))


class _Listen:
    """Replacement for `debugpy.listen` that returns the port of the running debugger if the job calls it as well.

    debugpy itself raises an error then, which would end the job.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.called = bool(function.called)
        """Whether debugpy is listening; debugpy sets and reads this."""
        self.port = 0

    def __call__(self, *arguments: Any, **named: Any) -> tuple[str, int]:
        if self.called and self.port:
            write_line(
                f"debugpy.listen(): the debugger that was started for relay-client is used, on port {self.port}; only "
                "one can be in a process"
            )
            return "127.0.0.1", self.port
        return self._function(*arguments, **named)  # type: ignore[no-any-return] # debugpy's function is not typed


def connect(debugpy: ModuleType, port: int) -> None:
    """Call `debugpy.connect` without its wait for the editor's configurationDone, which has no time limit."""
    OutputQueue.expects_receipts = False
    address = ("127.0.0.1", port)
    if not table.DIALLING.is_available():
        debugpy.connect(address)
        return
    api = sys.modules["debugpy.server.api"]
    # `debugpy.listen` calls it with the same argument.
    settrace = functools.partial(api._settrace, wait_for_ready_to_run=False)  # noqa: SLF001 - as in the table
    with replaced(api, "_settrace", settrace):
        debugpy.connect(address)


def find_adapter_port() -> int | None:
    """Return the port that the job passed to its own `debugpy.listen`, or None if that is unknown.

    debugpy stores the port only in the command line of its adapter. If the job passed port 0, the actual port is
    unknown.
    """
    api = sys.modules.get("debugpy.server.api")
    if api is None or not table.JOB_PORT.is_available():
        return None
    command = list(getattr(api._adapter_process, "args", ()))  # noqa: SLF001 - nothing public has the port
    if "--port" not in command[:-1]:
        return None
    return int(command[command.index("--port") + 1]) or None
