"""Public functions for jobs: make the process debuggable, wait for a debugger, and stop at breakpoints.

Errors never stop the job: they are printed to stderr, and the functions that start debugging return False.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec

from relay_agent.job.paths import start_directory  # noqa: F401 - importing it records the directory
from relay_agent.job.stderr import as_own_error, is_of_import, report_failure, write_line
from relay_agent.settings.arguments import misspelt_arguments, misspelt_switch, parse_step_arguments
from relay_agent.settings.model import DEFAULT_HOLD, DEFAULT_PORT, DEFAULT_WAIT, DebugSettings, parse_ranks
from relay_agent.settings.table import SETTINGS, as_text, read_settings
from relay_core.access_settings import AccessSettings
from relay_core.errors import TimedOut

if TYPE_CHECKING:
    from relay_agent.debuggee.debugger import Debugger
    from relay_agent.debuggee.process import DebuggedProcess
    from relay_agent.values.presentation import ShownText

_P = ParamSpec("_P")


def _accepts_any_call(
    usage: str, old_order: Sequence[str], is_old: Callable[[Sequence[Any]], bool]
) -> Callable[[Callable[_P, bool]], Callable[_P, bool]]:
    """Return a decorator with which a wrong call of a function ends no job: one sentence shows the right call.

    Unknown arguments are ignored. The positional arguments of a call with an argument twice are in the old order, too.

    Args:
        usage: The right arguments.
        old_order: The names of positional arguments in the functions of azure-debug-relay's sample.
        is_old: Whether positional arguments are in that order.
    """

    def decorate(function: Callable[_P, bool]) -> Callable[_P, bool]:
        code = function.__code__
        names: Sequence[str] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> bool:
            order = names[: code.co_argcount]
            in_old_order = is_old(args) or not kwargs.keys().isdisjoint(order[: len(args)])
            if in_old_order:
                order = old_order
            given = dict(zip(order, args, strict=False)) | kwargs
            ignored = [name for name in given if name not in names]
            ignored += [f"number {number + 1}" for number in range(len(order), len(args))]
            if in_old_order or ignored:
                faults = ["arguments in an older order"] * in_old_order
                faults += [f"unknown arguments, which are ignored ({', '.join(ignored)})"] * bool(ignored)
                name = function.__name__
                _warn(f"{name}() was called with {' and '.join(faults)}; call it as {name}({usage})")
            return function(**{name: value for name, value in given.items() if name in names})  # type: ignore[call-arg]

        return call

    return decorate


@_accepts_any_call(
    "argv=None, ignore_debug_flag=False", ["ignore_debug_flag"], lambda args: bool(args) and isinstance(args[0], bool)
)
def start_remote_debugging_from_args(argv: Sequence[str] | None = None, *, ignore_debug_flag: bool = False) -> bool:
    """Start debugging if the command line has `--is-debug`, and return whether a debugger is attached.

    Args:
        argv: The job's arguments, by default `sys.argv[1:]`. They are not changed, and other arguments are ignored; see
            `relay_agent.settings.arguments`.
        ignore_debug_flag: Whether to start debugging also without `--is-debug`.
    """
    try:
        settings = _read_arguments(argv, ignore_debug_flag=ignore_debug_flag)
    except Exception as error:  # noqa: BLE001 - as in `start_debugging`
        return _continue_without_debugger(error)
    return settings is not None and start_debugging(settings)


@_accepts_any_call(
    "debug_relay_connection_name, debug_port, wait=SECONDS, debug_relay_connection_string_secret=NAME",
    [
        "debug_relay_connection_string_secret", "debug_relay_connection_name", "debug_port", "debugpy_connect_timeout",
    ],
    lambda args: len(args) > 1 and not str(args[1]).isdecimal(),
)  # fmt: skip
def start_remote_debugging(
    debug_relay_connection_name: str | None = None,
    debug_port: int | str = DEFAULT_PORT,
    *,
    wait: float | str = DEFAULT_WAIT,
    debug_ranks: str = "0",
    rank: int | None = None,
    on_timeout: str = "continue",
    on_crash: bool = False,
    hold: float | str = DEFAULT_HOLD,
    timeouts: float | str | None = None,
    forward: Sequence[int] = (),
    tensorboard: Sequence[str] = (),
    monitor: float | str | None = None,
    metrics: int | str | None = None,
    follow_children: bool = False,
    values: bool = True,
    allow_edit: bool = False,
    connection_string: str | None = None,
    connection_string_file: str | None = None,
    key_vault: str | None = None,
    namespace: str | None = None,
    identity: str | None = None,
    tunnel_key_file: str | None = None,
    tunnel_key_secret: str | None = None,
    ca_file: str | None = None,
    debug_relay_connection_string_secret: str | None = None,
    debugpy_connect_timeout: float | None = None,
) -> bool:
    """Make this process remotely debuggable, and return whether a debugger is attached.

    The agent reads settings that are not given from the job's environment variables, such as RELAY_CONNECTION_STRING,
    RELAY_CONNECTION_STRING_FILE, KEY_VAULT_URL and RELAY_NAMESPACE; see `relay_core.auth.sources`.

    Args:
        debug_relay_connection_name: Name of the hybrid connection; by default, the one in the connection string.
        debug_port: Logical port of rank 0, as in your launch.json; rank n has this number plus n. The number identifies
            the process; no socket on this machine uses it.
        wait: Time to wait for the debugger, in seconds or as in "10m" (also below); if 0, the job does not wait, but a
            debugger can attach at any time.
        debug_ranks: Ranks that wait, such as "0,3-5", "all" or "none"; the other ranks continue immediately.
        rank: Rank of this process, if the environment does not define it.
        on_timeout: "continue" or "abort": what to do if no debugger attaches in time.
        on_crash: Whether to hold the process at its first uncaught exception.
        hold: Time to wait for a debugger at a crash or at `breakpoint()`.
        timeouts: Time to which the timeouts of collective operations are raised, for example of torch.distributed;
            "held", the default, raises them only while a rank of the job is held, and "off" never.
        forward: Additional ports on this machine that clients can connect to.
        tensorboard: Directories whose TensorBoard event files are served.
        monitor: Interval at which CPU, memory and GPU usage are recorded.
        metrics: Port, or "HOST:PORT", at which the samples are served to Prometheus.
        follow_children: Whether to offer child processes to the debugger too.
        values: Whether arrays and tables are shown by type and shape.
        allow_edit: Whether `relay-client push` may replace running code.
        connection_string: Connection string with the Listen right.
        connection_string_file: File with the connection string, readable by its owner only.
        key_vault: Key Vault that contains the secrets.
        namespace: Relay namespace, for Entra ID tokens instead of a connection string.
        identity: The only Entra identity to use, such as "managed".
        tunnel_key_file: File with the tunnel key, readable by its owner only.
        tunnel_key_secret: Name of a Key Vault secret that contains the tunnel key.
        ca_file: PEM file with the certificate authority of your own relay.
        debug_relay_connection_string_secret: Name of a Key Vault secret that contains the connection string. The agent
            reads it; it is not loaded into this process.
        debugpy_connect_timeout: Older name for `wait`.
    """
    given: dict[str, Any] = {
        **locals(),
        "hc": debug_relay_connection_name,
        "connection_string_secret": debug_relay_connection_string_secret,
        "wait": wait if debugpy_connect_timeout is None else debugpy_connect_timeout,
    }
    access = AccessSettings(**{field: given[field] for field in AccessSettings._fields})
    try:
        texts = {setting.field: as_text(given[setting.parameter]) for setting in SETTINGS}
        settings = DebugSettings(access, **read_settings(texts, lambda setting: setting.parameter))
    except Exception as error:  # noqa: BLE001 - as in `start_debugging`
        return _continue_without_debugger(error)
    return start_debugging(settings, rank=rank)


@contextlib.contextmanager
def hold_on_crash() -> Iterator[None]:
    """Hold the process if an exception leaves the block (or the decorated function), then re-raise the exception.

    For exceptions that a framework catches, so that they never become uncaught. Does nothing in a run that is not
    debugged with `--debug-on-crash`.
    """
    try:
        yield
    except Exception as error:
        post_mortem = sys.modules.get("relay_agent.debuggee.post_mortem")  # imported in debug runs only
        if post_mortem is not None:
            post_mortem.hold_at(error)
        raise


def start_debugging(settings: DebugSettings, *, rank: int | None = None) -> bool:
    """Make this process debuggable, wait for a debugger if its rank is selected, and return whether one is attached.

    A multiprocessing child of a process with the same port is left alone: it imports the program anew, with this call.

    Raises:
        SystemExit: no debugger attached in time and `abort_on_timeout` is set (status 14). A process that was refused
            because another one has its port never exits: it is not the one that waits for a debugger.
    """
    try:
        if _is_worker(settings, rank):
            return _following_debugger() is not None
        process = _begin(settings, rank=rank)
        waits = settings.ranks.includes(process.identity)
        if process.wait_and_log(settings.wait if waits else 0):
            return True
    except KeyboardInterrupt:
        write_line("interrupted before a debugger was attached")
        raise KeyboardInterrupt from None  # without the frames of the wait, which are not the job's
    except (Exception, SystemExit) as error:  # no error in the debugger may stop the job
        if isinstance(error, SystemExit) and not is_of_import(error):
            raise
        return _continue_without_debugger(error)
    if waits and settings.abort_on_timeout and settings.wait > 0 and not process.node_client.was_refused:
        outcome = "exiting" if process.attaching.obstacle else "no debugger attached in time; exiting"
        process.log(f"{outcome} (--debug-on-timeout abort)")
        sys.exit(TimedOut.exit_code)
    return False


def breakpoint(  # noqa: A001 - intended: a remote version of Python's breakpoint()
    *args: object, rank: int | str | None = None, when: bool = True, hold: float = DEFAULT_HOLD, **unknown: object
) -> None:
    """Stop here in the debugger, and wait for one if none is attached. In a run without debugging, do nothing.

    Args:
        args: Ignored, as are unknown arguments, with a warning.
        rank: Stop only in these ranks, such as 3 or "0,3-5"; by default, stop in every rank.
        when: Stop only if this is true.
        hold: Seconds to wait for a debugger before the job continues.
    """
    if not when or _is_being_compiled():
        return
    try:
        process = _process_if_debugged()
        if process is None and _settings_of_command_line() is None:
            return
        if args or unknown:
            usage = "breakpoint(rank=RANKS, when=CONDITION, hold=SECONDS)"
            _warn(f"breakpoint() was called with unknown arguments, which are ignored; call it as {usage}")
        from relay_agent.settings.ranks import identify  # noqa: PLC0415 - in debug runs only, as below

        identity = identify(os.environ) if process is None else process.identity
        if rank is not None and not parse_ranks(str(rank)).includes(identity):
            return
        frame: FrameType = sys._getframe(1)  # noqa: SLF001 - the frame to stop in is the caller's
        if process is not None:
            process.hold_at(frame, "breakpoint()", hold)
        elif (debugger := _following_debugger()) is not None:
            debugger.break_at(frame)
    except Exception as error:  # noqa: BLE001 - as above
        _continue_without_debugger(error)


def present(kind: type | str, function: Callable[[Any], str]) -> None:
    """Make debuggers show values of a type as the text that a function returns, instead of as their `repr`.

    Args:
        kind: A type, or its full name, such as "mylib.batch.Batch"; the type need not be imported. Subclasses are
            included.
        function: Called with the value, in a helper thread, whenever a debugger shows it. If it takes more than 0.4 s,
            a note is shown instead of the text; if it raises an exception, the `repr` is shown.
    """
    from relay_agent.values import presentation  # noqa: PLC0415 - only for jobs that call this

    presentation.present(kind, function)


def stats(value: object, seconds: float = 5.0) -> ShownText:
    """Return the minimum, maximum, mean and number of NaNs of each tensor and array in a value, shown as text.

    In the debug console, relay-client's command `@stats x` calls this function. All elements are read in a helper
    thread, which may wait for a device.

    Args:
        value: A tensor, an array, or something that contains them, such as a module or a dict.
        seconds: Time limit in seconds.
    """
    from relay_agent.values.contents import compute_statistics  # noqa: PLC0415 - only for callers of this

    return compute_statistics(value, seconds)


def _is_being_compiled() -> bool:
    """Whether torch.compile is tracing this call, which then becomes no code; in a debug run, it calls `breakpoint`."""
    is_compiling = getattr(sys.modules.get("torch.compiler"), "is_dynamo_compiling", None)
    return is_compiling is not None and is_compiling()


def _process_if_debugged() -> DebuggedProcess | None:
    """Return the state of this process in a debug run, creating it if the command line has `--is-debug`; else None.

    None in a worker, too.
    """
    debugging = sys.modules.get("relay_agent.debuggee.process")
    if debugging is not None and (process := debugging.current()) is not None:
        return process  # type: ignore[no-any-return]  # its module is imported below
    settings = _settings_of_command_line()
    return None if settings is None or _is_worker(settings, None) else _begin(settings)


def _is_worker(settings: DebugSettings, rank: int | None) -> bool:
    from relay_agent.settings.environment import is_worker  # noqa: PLC0415
    from relay_agent.settings.ranks import identify, logical_port  # noqa: PLC0415 - in debug runs only, as below

    own_rank = identify(os.environ).rank if rank is None else rank
    return is_worker(os.environ, os.getpid(), logical_port(settings.port, own_rank))


def _following_debugger() -> Debugger | None:
    """Return the debugger if it is attached; it has started this child process, or else pydevd is not imported."""
    if "pydevd" not in sys.modules:
        return None
    from relay_agent.debuggee.debugger import debugger  # noqa: PLC0415 - its imports take 0.15 s

    return debugger if debugger.is_attached() else None


def _begin(settings: DebugSettings, *, rank: int | None = None) -> DebuggedProcess:
    """Register this process, and make Python's `breakpoint()` use the debugger."""
    from relay_agent.debuggee import breakpoint_hook, stopping  # noqa: PLC0415 - in debug runs only, as below
    from relay_agent.debuggee.process import begin  # noqa: PLC0415

    stopping.keep_uncompiled(breakpoint)
    breakpoint_hook.install()  # also if no debugger can attach
    return begin(settings, rank=rank)


@functools.cache
def _settings_of_command_line() -> DebugSettings | None:
    """Return the settings from the command line; cached, because breakpoint() may be called in a hot loop."""
    return _read_arguments()


def _read_arguments(argv: Sequence[str] | None = None, *, ignore_debug_flag: bool = False) -> DebugSettings | None:
    """Return the settings from a command line; rank 0 logs a warning for each argument that seems to be misspelt.

    Raises:
        UsageError: a value is invalid.
    """
    settings = parse_step_arguments(argv, ignore_debug_flag=ignore_debug_flag)
    if settings is not None:
        misspelt = misspelt_arguments(argv)
    else:
        misspelt = {switch: "--is-debug"} if (switch := misspelt_switch(argv)) else {}
    for argument, similar in misspelt.items():
        _warn(f"unknown argument {argument}; did you mean {similar}?")
    return settings


def _warn(text: str) -> None:
    """Log a warning, in rank 0 only."""
    from relay_agent.settings.ranks import identify  # noqa: PLC0415 - for warnings only

    if identify(os.environ).is_master:
        write_line(f"warning: {text}")


def _continue_without_debugger(error: BaseException) -> bool:
    report_failure(as_own_error(error))
    with contextlib.suppress(Exception):
        from relay_agent.debuggee import breakpoint_hook  # noqa: PLC0415 - in debug runs only

        breakpoint_hook.install()  # pdb, which Python starts otherwise, would end the job
    return False
