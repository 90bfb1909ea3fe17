"""Table of debugpy's private functions, by feature; a feature is off in versions that lack one of its functions."""

from __future__ import annotations

from relay_agent.debugpy_internals.feature import Feature, Internal

# Modules and classes with many of the functions.

COMM = "_pydevd_bundle.pydevd_comm"
CONSTANTS = "_pydevd_bundle.pydevd_constants"
REASONS = "_pydevd_bundle.pydevd_comm_constants"
LIFECYCLE = "_pydevd_bundle.pydevd_thread_lifecycle"
EXTENSION = "_pydevd_bundle.pydevd_extension_api"
REDIRECTS = "_pydevd_bundle.pydevd_io"
MONKEY = "_pydev_bundle.pydev_monkey"
COMMAND = "_pydevd_bundle.pydevd_net_command:NetCommand"
FACTORY = "_pydevd_bundle.pydevd_net_command_factory_json:NetCommandFactoryJson"
PROCESSOR = "_pydevd_bundle.pydevd_process_net_command_json:PyDevJsonCommandProcessor"
THREAD_INFO = "_pydevd_bundle.pydevd_additional_thread_info:PyDBAdditionalThreadInfo"
DAEMON = "_pydevd_bundle.pydevd_daemon_thread:PyDBDaemonThread"
STOPS = "pydevd:ThreadsSuspendedSingleNotification"
NUMBERS = "pydevd:AbstractSingleNotificationBehavior"


# Functions that several features use.

MESSAGE = Internal(COMMAND, "called", "creates a message for the adapter")
DEBUGGER = Internal("pydevd:get_global_debugger", "called", "finds the debugger of the process")
WRITER = Internal("pydevd:PyDB.writer", "read", "the connection to the adapter", True)
LOCK = Internal("pydevd:PyDB._main_lock", "called", "held while pydevd processes a request", True)
MONITORING = Internal(f"{CONSTANTS}:PYDEVD_USE_SYS_MONITORING", "read", "which kind of tracing is in use")
TRACER = Internal("pydevd:PyDB.trace_dispatch", "read", "the trace function", True)
ENABLE = Internal("pydevd:PyDB.enable_tracing", "called", "traces a thread")


# The part of the table with features that change the messages between pydevd and debugpy's adapter.

SENDING = Feature(
    "each response takes up to 40 ms longer, and a response of 16 MiB or more makes the session hang",
    Internal(f"{COMMAND}.send", "replaced", "sets TCP_NODELAY and limits the size"),
    MESSAGE,
    Internal(f"{COMMAND}._as_bytes", "read", "the size of a message", True),
    Internal(f"{COMMAND}.as_dict", "read", "the content of a message"),
)
FLOODS = Feature(
    "with `redirectOutput`, a job that prints without pause gets no response to the editor's requests, and its memory "
    "grows",
    Internal(f"{FACTORY}.make_io_message", "replaced", "limits how much output waits to be sent"),
    Internal(f"{FACTORY}.make_console_message", "called", "reports how much output was left out"),
    Internal(f"{COMM}:WriterThread.add_command", "replaced", "limits how much output waits to be sent"),
    Internal(f"{COMM}:WriterThread._cmd_queue", "called", "keeps output in order with other messages", True),
    Internal(f"{COMM}:CMD_EXIT", "read", "the last message of a connection"),
    Internal("pydevd:PyDB.dispose_and_kill_all_pydevd_threads", "replaced", "sends the last output first"),
    Internal(f"{PROCESSOR}.process_net_command_json", "replaced", "receives the adapter's receipts for output"),
    Internal("_pydevd_bundle.pydevd_dont_trace_files:DONT_TRACE", "set", "keeps threads from stopping in relay_agent"),
    Internal("_pydevd_bundle.pydevd_dont_trace_files:PYDEV_FILE", "read", "marks a file that is not traced"),
    WRITER,
    MESSAGE,
)
UNSUPPORTED = Feature(
    "after a request that debugpy does not support, such as `cancel`, the debugger responds to nothing",
    Internal(
        f"{PROCESSOR}.process_net_command_json", "replaced", "rejects requests without a function `on_..._request`"
    ),
    WRITER,
    MESSAGE,
)

DATA_BREAKPOINTS = Feature(
    "*Break on Value Change* is rejected",
    Internal(PROCESSOR, "set", "receives functions for two more requests"),
    Internal(
        "_pydevd_bundle.pydevd_api:PyDevdAPI.request_disconnect", "replaced", "removes them at the end of a session"
    ),
    Internal(f"{FACTORY}.make_thread_suspend_single_notification", "replaced", "names the value that has changed"),
    Internal("pydevd:PyDB.suspended_frames_manager", "read", "the values that the editor shows", True),
    Internal("pydevd:PyDB.do_wait_suspend", "replaced", "reads the values again that the user may have changed"),
    Internal("_pydevd_bundle.pydevd_suspended_frames:SuspendedFramesManager.get_variable", "called", "as above"),
    Internal(f"{COMMAND}.as_dict", "read", "the content of a message"),
    MESSAGE,
)


# The part of the table with features that stop a thread of the job, or examine stopped threads.

UNTRACED = (
    ENABLE,
    Internal("pydevd:PyDB.set_additional_thread_info", "called", "pydevd's state of the thread", True),
    Internal("pydevd:PyDB.disable_tracing", "called", "keeps the debugger from stopping in relay_agent"),
    Internal(f"{THREAD_INFO}.is_tracing", "set", "keeps the debugger from stopping in relay_agent", True),
)
STEPS = [f"{kind}{suffix}" for kind in ("INTO", "OVER", "RETURN") for suffix in ("", "_MY_CODE")]

BREAK_HERE = Feature(
    "`relay_agent.breakpoint()` stops one frame too deep, in relay_agent",
    Internal("pydevd:settrace", "called", "stops in a given frame"),
)
COMPILED_CALLER = Feature(
    "`relay_agent.breakpoint()` in a function that torch.compile has compiled stops in a caller of that function",
    DEBUGGER,
    Internal("pydevd:PyDB.set_suspend", "called", "marks the thread as stopped"),
    Internal("pydevd:PyDB.do_wait_suspend", "called", "stops the thread in a given frame"),
    Internal(f"{REASONS}:CMD_SET_BREAK", "read", "the reason of the stop"),
    *UNTRACED,
    Internal("pydevd:PyDB.set_trace_for_frame_and_parents", "called", "as below"),
    *(Internal(f"{REASONS}:CMD_STEP_{name}", "read", "a step from a return") for name in STEPS),
    *(Internal(f"{THREAD_INFO}.pydev_step_{name}", "set", "as above", True) for name in ("cmd", "stop")),
)
POST_MORTEM = Feature(
    "a crashed process is announced and held, but the debugger does not stop at the line that raised the exception",
    DEBUGGER,
    Internal(
        "pydevd:PyDB.break_on_uncaught_exceptions", "read", "shows whether the debugger has already stopped", True
    ),
    Internal("pydevd:PyDB.do_stop_on_unhandled_exception", "called", "stops at the exception (before 1.8.22)"),
    Internal(f"{REASONS}:CMD_ADD_EXCEPTION_BREAK", "read", "shows whether a debugger has stopped"),
    Internal("threading:Thread.stop_reason", "read", "shows whether a debugger has stopped", True),
    *UNTRACED,
)
THREAD_STATE = Feature(
    "`relay-client hang` does not show that a rank is stopped, and `relay-client eval` sees only the program's globals",
    Internal(f"{THREAD_INFO}.pydev_state", "read", "whether a thread is stopped", True),
    Internal(f"{CONSTANTS}:STATE_SUSPEND", "read", "the state value of a stopped thread"),
    Internal("threading:Thread.stop_reason", "read", "why a thread is stopped", True),
    Internal(
        f"{REASONS}:CMD_THREAD_SUSPEND",
        "read",
        "the reason of a thread that is stopped along with another one, or by `pause`",
    ),
)
TORCH_STATES = Feature(
    "`relay-client eval` evaluates with gradients, without autocast, and in the default stream of the first GPU",
    Internal("pydevd:PyDB.do_wait_suspend", "replaced", "reads torch's state of the stopped thread"),
)


# `docs/reference/debugpy.md` is generated from it. Every use must be in this table: with another version of debugpy,
# any other use could end sessions without a log message.

ADAPTER_USER = Feature(
    "after debugpy's adapter has exited, a child process that is followed may connect to a program of another user",
    Internal("pydevd:start_client", "replaced", "checks who has accepted the connection to the adapter"),
)
CLOSED_DESCRIPTORS = Feature(
    "a job that closes all descriptors while an editor is attached may lose what it writes to its files",
    Internal("pydevd:start_client", "replaced", "checks that the descriptor of the connection is still the debugger's"),
)
WAKING = Feature(
    "a step in a job with several threads may take 0.2 s longer",
    Internal(f"{LIFECYCLE}:internal_run_thread", "replaced", "wakes the resumed thread"),
    Internal(f"{COMM}:InternalThreadCommand.do_it", "replaced", "makes a thread read its next command immediately"),
    Internal(f"{COMM}:InternalThreadCommand.thread_id", "read", "the thread that executes a command", True),
    Internal("pydevd:PyDB.get_internal_queue_and_event", "called", "finds the event that a stopped thread waits for"),
    Internal(f"{CONSTANTS}:get_thread_id", "called", "pydevd's id for a thread"),
    Internal(f"{CONSTANTS}:get_global_debugger", "called", "finds the debugger of the process"),
)
CONTINUING = Feature(
    "pressing Continue twice can make the debugger stop responding until the job ends (microsoft/debugpy#2048)",
    Internal(
        f"{STOPS}.add_on_resumed_callback", "replaced", "responds to `continue` immediately if nothing is stopped"
    ),
    Internal(
        f"{STOPS}.send_suspend_notification", "replaced", "responds to `continue` before the next stop is reported"
    ),
    Internal(f"{STOPS}._callbacks", "set", "the callbacks that wait for the threads to resume"),
    Internal(f"{STOPS}._callbacks_lock", "called", "protects the callbacks that wait for the threads to resume"),
    Internal(f"{NUMBERS}._lock", "called", "protects the numbers of the last resume and the last stop"),
    Internal(f"{NUMBERS}._last_resume_notification_time", "read", "the number of the last resume"),
    Internal(f"{NUMBERS}._last_suspend_notification_time", "read", "the number of the last stop"),
)
INTERRUPTED = Feature(
    "after a signal handler of the job has raised an exception at a breakpoint, other threads stay stopped, and up to "
    "Python 3.11 the main thread no longer stops",
    Internal("pydevd:PyDB.do_wait_suspend", "replaced", "resumes all threads if an exception ends the stop"),
    Internal(f"{LIFECYCLE}:resume_threads", "called", "marks the threads as running"),
    Internal("pydevd:PyDB.set_trace_for_frame_and_parents", "called", "traces functions that are already running"),
    MONITORING,
    DEBUGGER,
    ENABLE,
)
SHOWING = Feature(
    "tensors, arrays and tables are shown in full instead of summarized, and one slow `repr` or property delays all "
    "variables",
    Internal("_pydevd_bundle.pydevd_safe_repr:SafeRepr._repr_obj", "replaced", "calls `repr` with a deadline"),
    Internal(
        "_pydevd_bundle.pydevd_suspended_frames:get_variable_details",
        "replaced",
        "passes on the context in which a value is shown (such as repl or clipboard)",
    ),
    Internal(f"{EXTENSION}:StrPresentationProvider", "read", "the kind of extension"),
    Internal(
        "_pydevd_bundle.pydevd_extension_utils:extensions_of_type", "called", "adds an extension that describes values"
    ),
    Internal(
        "_pydevd_bundle.pydevd_xml:_TYPE_RESOLVE_HANDLER._type_to_str_provider_cache",
        "called",
        "makes pydevd check each type again",
    ),
    Internal(
        "_pydevd_bundle.pydevd_resolver:DefaultResolver._get_py_dictionary",
        "replaced",
        "reads attributes with a deadline",
    ),
    Internal("_pydevd_bundle.pydevd_resolver:DefaultResolver.get_names", "called", "names of the attributes"),
)
RESTART = Feature(
    "a process cannot be debugged again after its debugger has ended, and a forked child of a debugged process cannot "
    "be debugged at all",
    Internal("debugpy.server.api:listen.called", "set", "allows `debugpy.listen` to be called again"),
    Internal("pydevd:SetupHolder.setup", "set", "removes the settings of the previous debugger"),
)
STOPPED_THREADS = Feature(
    "after debugpy's adapter is killed and another debugger attaches, threads that had been stopped or were being "
    "stepped stop again without a `stopped` event, and uncaught exceptions in existing threads are ignored",
    Internal("_pydevd_bundle.pydevd_additional_thread_info:set_additional_thread_info", "called", "state of a thread"),
    Internal(f"{LIFECYCLE}:internal_run_thread", "called", "marks the thread as running"),
    Internal(
        f"{THREAD_INFO}.top_level_thread_tracer_unhandled",
        "set",
        "removes the function that reports uncaught exceptions to the ended debugger",
    ),
)
PUSHED_LINES = Feature(
    "breakpoints in a file that was replaced by `relay-client push` are moved to the lines of the file on the node",
    Internal("_pydevd_bundle.pydevd_api:_get_code_lines", "replaced", "reads the lines of the new content"),
    Internal("_pydevd_bundle.pydevd_api:PyDevdAPI.reapply_breakpoints", "called", "sets breakpoints in the new code"),
    DEBUGGER,
    LOCK,
)
DIALLING = Feature(
    "a job that connects to a listening editor reports the connection only after it has received the editor's "
    "breakpoints",
    Internal("debugpy.server.api:_settrace", "replaced", "connects without waiting indefinitely"),
)
JOB_LISTEN = Feature(
    "a job that calls `debugpy.listen` after an editor has attached gets an error",
    Internal("debugpy.server.api:listen", "replaced", "returns the port of the running debugger"),
    Internal("debugpy.server.api:listen.called", "read", "whether debugpy is listening"),
)
JOB_PORT = Feature(
    "the port of a debugger that the job itself has started is unknown",
    Internal("debugpy.server.api:_adapter_process", "read", "the adapter's command line contains the port"),
)
STARTING = Feature(
    "the first attach takes longer, by 0.1 s and more if many packages are installed",
    Internal(
        "debugpy.common.log:describe_environment",
        "replaced",
        "does not list the installed packages for a log that is off",
    ),
    Internal("debugpy.common.log:_levels", "read", "whether the log is on"),
    Internal("pydevd:time", "replaced", "skips a pause after the start of the connection's threads"),
)
STATE = Feature(
    "a debugger that the job itself has started is not found, and a debugger that has ended cannot be started again",
    DEBUGGER,
)
REDIRECTION = (
    Internal(f"{REDIRECTS}:stop_redirect_stream_to_pydb_io_messages", "called", "puts back the job's stream"),
    Internal(f"{REDIRECTS}:_RedirectionsHolder._pydevd_stdout_redirect_", "read", "the redirected stdout"),
    Internal(f"{REDIRECTS}:_RedirectionsHolder._pydevd_stderr_redirect_", "read", "the redirected stderr"),
    Internal(f"{REDIRECTS}:IORedirector._redirect_to", "set", "sends no more output to the editor", True),
)
RELEASE = Feature(
    "the job stays slow after the debugger has detached",
    DEBUGGER,
    LOCK,
    ENABLE,
    Internal("pydevd:PyDB.patch_threads", "called", "traces threads that start later"),
    Internal("pydevd:PyDB.set_tracing_for_untraced_contexts", "called", "traces the other running threads"),
    TRACER,
    Internal(f"{MONKEY}:disable_trace_thread_modules", "called", "stops tracing threads that start later"),
    Internal(f"{MONKEY}:enable_trace_thread_modules", "called", "resumes the tracing of threads that start later"),
    Internal("pydevd_tracing:set_trace_to_threads", "called", "replaces the trace function of other threads"),
    MONITORING,
    Internal("_pydevd_frame_eval.pydevd_frame_eval_main:stop_frame_eval", "called", "stops the compiled tracing"),
    *REDIRECTION,
)
REACHING = Feature(
    "on processors other than x86, threads that were running before the debugger attached do not stop",
    DEBUGGER,
    ENABLE,
    TRACER,
    Internal("pydevd_tracing:_load_python_helper_lib", "called", "shows whether pydevd reaches other threads itself"),
    MONITORING,
)
UNCAUGHT = Feature(
    "up to Python 3.11, a job that has waited for a debugger under `relay-agent run` does not stop at uncaught "
    "exceptions",
    Internal(f"{CONSTANTS}:get_global_debugger", "called", "finds the debugger of the process"),
    TRACER,
    MONITORING,
)
GEVENT = Feature(
    "a job that uses gevent cannot be debugged, or its breakpoints are not hit",
    Internal("_pydev_bundle._pydev_saved_modules:ThreadingEvent", "set", "blocks threads rather than greenlets"),
    Internal("debugpy.common.sockets:create_server", "called", "is made to use a `socket` module that blocks threads"),
    MONITORING,
    Internal("pydevd:pydevd_gevent_integration", "read", "its `greenlet_events` is replaced to trace all greenlets"),
    Internal("pydevd:CheckAliveThread", "replaced", "makes the thread a daemon; the job would wait for it at the exit"),
    Internal("pydevd:PyDB.set_trace_for_frame_and_parents", "called", "traces functions that are already running"),
    Internal("pydevd:PyDB.mtime", "read", "shows whether breakpoints have changed", True),
    DEBUGGER,
    ENABLE,
)
GEVENT_HINT = Feature(
    "debugpy repeats its hint about gevent",
    Internal(f"{COMM}:notify_about_gevent_if_needed", "replaced", "prints nothing"),
    Internal("_pydevd_bundle.pydevd_daemon_thread:notify_about_gevent_if_needed", "replaced", "prints nothing"),
)
CHILD_WAIT = Feature(
    "a child process that is offered to an editor waits for the editor without limit",
    Internal("pydevd:PyDB.wait_for_ready_to_run", "replaced", "waits for a limited time"),
    Internal("pydevd:PyDB.ready_to_run", "set", "whether the editor has sent its breakpoints", True),
    Internal("pydevd:PyDB.pydb_disposed", "read", "whether the debugger has ended", True),
    Internal("pydevd:PyDB.process_internal_commands", "called", "processes commands while the child waits"),
)
EXITING = Feature(
    "a process does not exit if debugpy's adapter exited while the debugger was starting in the process",
    Internal(f"{COMM}:WriterThread.empty", "replaced", "ignores messages that can no longer be sent"),
)
FORKING = Feature(
    "a forked child keeps its parent's debugger, and can wait for that debugger at a breakpoint",
    Internal(f"{CONSTANTS}:GlobalDebuggerHolder.global_dbg", "set", "removes the reference to the debugger"),
    Internal(f"{CONSTANTS}:after_fork", "called", "replaces locks that another thread held"),
    Internal("threading:Thread.additional_info", "set", "removes pydevd's state of the thread", True),
    *REDIRECTION,
)
REMOVED_DIRECTORY = Feature(
    "an editor cannot attach to a process whose working directory was removed",
    Internal("_pydevd_bundle.pydevd_process_net_command_json:os", "replaced", "reads the working directory"),
    Internal("pydevd_file_utils:os", "replaced", "makes the paths of files absolute"),
    Internal("pydevd_file_utils:os_path_real_path", "replaced", "resolves links in the paths of files"),
)
FOLLOWING = Feature(
    "an editor that attaches cannot follow child processes unless the job has `--debug-follow-children`",
    Internal(f"{PROCESSOR}._set_debug_options", "replaced", "reads `subProcess` in `attach`"),
    Internal(f"{MONKEY}:_get_apply_arg_patching", "replaced", "decides whether a new process is followed"),
    Internal(f"{MONKEY}:patch_new_process_functions", "called", "detects processes that are started"),
    Internal("pydevd:SetupHolder.setup", "set", "lets children follow their own children"),
    DEBUGGER,
)
CHILDREN = Feature(
    "child processes that the debugger follows are debugged without relay-debug's improvements to debugpy",
    Internal(f"{EXTENSION}:DebuggerEventHandler", "called", "base class of the extension"),
    Internal(
        f"{EXTENSION}:DebuggerEventHandler.on_debugger_modules_loaded",
        "replaced",
        "prepares pydevd in each child process",
    ),
)
UNATTACHED_AGENT = Feature(
    "an agent that is started while a debugger is attached appears in the editor as a child process",
    Internal(f"{MONKEY}:skip_subprocess_arg_patch", "called", "starts the agent without a debugger"),
)
UNREACHED = Feature(
    "no line reports that breakpoints are not hit because of another tool, in child processes that are not followed, "
    "in modules that were loaded from other files, in lines that have run, or in functions that torch.compile has "
    "compiled, or that their conditions or log messages raise",
    Internal(
        "_pydevd_bundle.pydevd_api:PyDevdAPI.notify_configuration_done",
        "replaced",
        "examines the process when an editor has attached",
    ),
    Internal("pydevd:PyDB.api_received_breakpoints", "read", "the files with breakpoints", True),
    Internal("pydevd:PyDB.handle_breakpoint_condition", "replaced", "reports a condition that raises"),
    Internal("pydevd:PyDB.handle_breakpoint_expression", "replaced", "reports a log message that raises"),
    Internal("pydevd:PyDB.file_to_id_to_line_breakpoint", "read", "the lines of the breakpoints", True),
    Internal("pydevd:PyDB.cmd_factory", "read", "creates the message for the editor", True),
    Internal(f"{FACTORY}.make_console_message", "called", "creates a line for the debug console"),
    Internal("pydevd:SetupHolder.setup", "read", "whether child processes are followed"),
    Internal("pydevd_tracing:TracingFunctionHolder._warnings_shown", "set", "the calls of `sys.settrace` by the job"),
    MONITORING,
    WRITER,
)
OUTPUT = Feature(
    "a developer can step into debugpy's code when relay-agent logs a line",
    Internal(f"{REDIRECTS}:IORedirector._redirect_to", "read", "the job's own stderr", True),
)
HIDDEN_THREADS = Feature(
    "relay-agent's thread is listed in the editor and is paused whenever the job is paused",
    Internal(f"{DAEMON}.is_pydev_daemon_thread", "set", "hides relay-agent's threads from pydevd", True),
    Internal(
        f"{DAEMON}.pydev_do_not_trace", "set", "keeps relay-agent's threads running while the job is stopped", True
    ),
)
RECOVERY = Feature(
    "a debugger that no longer responds prevents other debuggers from attaching until the job ends",
    DEBUGGER,
    WRITER,
    LOCK,
    Internal("pydevd:PyDB.dispose_and_kill_all_pydevd_threads", "called", "ends the debugger and resumes the job"),
    Internal("pydevd:PyDB.created_pydb_daemon_threads", "read", "the debugger's threads", True),
)

FEATURES = tuple(each for each in list(globals().values()) if isinstance(each, Feature))
"""All of them, in this order, which is that of the documentation."""
