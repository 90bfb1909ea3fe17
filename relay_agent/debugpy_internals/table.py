"""Table of debugpy's private functions, by feature; a feature is off in versions that lack one of its functions."""

from __future__ import annotations

from functools import partial

from relay_agent.debugpy_internals.feature import Feature, Internal

# What relay-debug does with a function or attribute.

called = partial(Internal, "called")
read = partial(Internal, "read")
replaced = partial(Internal, "replaced")
assigned = partial(Internal, "set")

# Modules and classes with many of the functions.

API = "_pydevd_bundle.pydevd_api"
COMM = "_pydevd_bundle.pydevd_comm"
CONSTANTS = "_pydevd_bundle.pydevd_constants"
REASONS = "_pydevd_bundle.pydevd_comm_constants"
LIFECYCLE = "_pydevd_bundle.pydevd_thread_lifecycle"
EXTENSION = "_pydevd_bundle.pydevd_extension_api"
REDIRECTS = "_pydevd_bundle.pydevd_io"
MONKEY = "_pydev_bundle.pydev_monkey"
VALUES = "_pydevd_bundle.pydevd_suspended_frames"
COMMAND = "_pydevd_bundle.pydevd_net_command:NetCommand"
FACTORY = "_pydevd_bundle.pydevd_net_command_factory_json:NetCommandFactoryJson"
PROCESSOR = "_pydevd_bundle.pydevd_process_net_command_json:PyDevJsonCommandProcessor"
THREAD_INFO = "_pydevd_bundle.pydevd_additional_thread_info:PyDBAdditionalThreadInfo"
DAEMON = "_pydevd_bundle.pydevd_daemon_thread:PyDBDaemonThread"
STOPS = "pydevd:ThreadsSuspendedSingleNotification"
NUMBERS = "pydevd:AbstractSingleNotificationBehavior"


# Functions that several features use.

MESSAGE = called(COMMAND, "creates a message for the adapter")
DEBUGGER = called("pydevd:get_global_debugger", "finds the debugger of the process")
WRITER = read("pydevd:PyDB.writer", "the connection to the adapter", True)
LOCK = called("pydevd:PyDB._main_lock", "held while pydevd processes a request", True)
MONITORING = read(f"{CONSTANTS}:PYDEVD_USE_SYS_MONITORING", "which kind of tracing is in use")
TRACER = read("pydevd:PyDB.trace_dispatch", "the trace function", True)
ENABLE = called("pydevd:PyDB.enable_tracing", "traces a thread")


# The part of the table with features that change the messages between pydevd and debugpy's adapter.

SENDING = Feature(
    "each response takes up to 40 ms longer, and a response of 16 MiB or more makes the session hang",
    replaced(f"{COMMAND}.send", "sets TCP_NODELAY and limits the size"),
    MESSAGE,
    read(f"{COMMAND}._as_bytes", "the size of a message", True),
    read(f"{COMMAND}.as_dict", "the content of a message"),
)
FLOODS = Feature(
    "with `redirectOutput`, a job that prints without pause gets no response to the editor's requests, and its memory "
    "grows",
    replaced(f"{FACTORY}.make_io_message", "limits how much output waits to be sent"),
    called(f"{FACTORY}.make_console_message", "reports how much output was left out"),
    replaced(f"{COMM}:WriterThread.add_command", "limits how much output waits to be sent"),
    called(f"{COMM}:WriterThread._cmd_queue", "keeps output in order with other messages", True),
    read(f"{COMM}:CMD_EXIT", "the last message of a connection"),
    replaced("pydevd:PyDB.dispose_and_kill_all_pydevd_threads", "sends the last output first"),
    replaced(f"{PROCESSOR}.process_net_command_json", "receives the adapter's receipts for output"),
    assigned("_pydevd_bundle.pydevd_dont_trace_files:DONT_TRACE", "keeps threads from stopping in relay_agent"),
    read("_pydevd_bundle.pydevd_dont_trace_files:PYDEV_FILE", "marks a file that is not traced"),
    WRITER,
    MESSAGE,
)
UNSUPPORTED = Feature(
    "after a request that debugpy does not support, such as `cancel`, the debugger responds to nothing",
    replaced(f"{PROCESSOR}.process_net_command_json", "rejects requests without a function `on_..._request`"),
    WRITER,
    MESSAGE,
)

DATA_BREAKPOINTS = Feature(
    "*Break on Value Change* is rejected",
    assigned(PROCESSOR, "receives functions for two more requests"),
    replaced(f"{API}:PyDevdAPI.request_disconnect", "removes them at the end of a session"),
    replaced(f"{FACTORY}.make_thread_suspend_single_notification", "names the value that has changed"),
    read("pydevd:PyDB.suspended_frames_manager", "the values that the editor shows", True),
    replaced("pydevd:PyDB.do_wait_suspend", "reads the values again that the user may have changed"),
    called(f"{VALUES}:SuspendedFramesManager.get_variable", "finds the value that the user has selected"),
    called(f"{VALUES}:SuspendedFramesManager.get_frame_tracker", "keeps it until its thread runs again"),
    called(f"{VALUES}:SuspendedFramesManager.get_thread_id_for_variable_reference", "finds that thread"),
    read(f"{COMMAND}.as_dict", "the content of a message"),
    MESSAGE,
)


# The part of the table with features that stop a thread of the job, or examine stopped threads.

UNTRACED = (
    ENABLE,
    called("pydevd:PyDB.set_additional_thread_info", "pydevd's state of the thread", True),
    called("pydevd:PyDB.disable_tracing", "keeps the debugger from stopping in relay_agent"),
    assigned(f"{THREAD_INFO}.is_tracing", "keeps the debugger from stopping in relay_agent", True),
)
STEPS = [f"{kind}{suffix}" for kind in ("INTO", "OVER", "RETURN") for suffix in ("", "_MY_CODE")]

BREAK_HERE = Feature(
    "`relay_agent.breakpoint()` stops one frame too deep, in relay_agent",
    called("pydevd:settrace", "stops in a given frame"),
)
COMPILED_CALLER = Feature(
    "`relay_agent.breakpoint()` in a function that torch.compile has compiled stops in a caller of that function",
    DEBUGGER,
    called("pydevd:PyDB.set_suspend", "marks the thread as stopped"),
    called("pydevd:PyDB.do_wait_suspend", "stops the thread in a given frame"),
    read(f"{REASONS}:CMD_SET_BREAK", "the reason of the stop"),
    *UNTRACED,
    called("pydevd:PyDB.set_trace_for_frame_and_parents", "lets a step end in the caller"),
    *(read(f"{REASONS}:CMD_STEP_{name}", "a step from a return") for name in STEPS),
    *(assigned(f"{THREAD_INFO}.pydev_step_{name}", "as above", True) for name in ("cmd", "stop")),
)
POST_MORTEM = Feature(
    "a crashed process is announced and held, but the debugger does not stop at the line that raised the exception",
    DEBUGGER,
    read("pydevd:PyDB.break_on_uncaught_exceptions", "shows whether the debugger has already stopped", True),
    called("pydevd:PyDB.do_stop_on_unhandled_exception", "stops at the exception (before 1.8.22)"),
    read(f"{REASONS}:CMD_ADD_EXCEPTION_BREAK", "shows whether a debugger has stopped"),
    read("threading:Thread.stop_reason", "shows whether a debugger has stopped", True),
    *UNTRACED,
)
THREAD_STATE = Feature(
    "`relay-client hang` does not show that a rank is stopped, and `relay-client eval` sees only the program's globals",
    read(f"{THREAD_INFO}.pydev_state", "whether a thread is stopped", True),
    read(f"{CONSTANTS}:STATE_SUSPEND", "the state value of a stopped thread"),
    read("threading:Thread.stop_reason", "why a thread is stopped", True),
    read(
        f"{REASONS}:CMD_THREAD_SUSPEND", "the reason of a thread that is stopped along with another one, or by `pause`"
    ),
)
TORCH_STATES = Feature(
    "`relay-client eval` evaluates with gradients, without autocast, and in the default stream of the first GPU",
    replaced("pydevd:PyDB.do_wait_suspend", "reads torch's state of the stopped thread"),
)


# `docs/reference/debugpy.md` is generated from it. Every use must be in this table: with another version of debugpy,
# any other use could end sessions without a log message.

ADAPTER_USER = Feature(
    "after debugpy's adapter has exited, a child process that is followed may connect to a program of another user",
    replaced("pydevd:start_client", "checks who has accepted the connection to the adapter"),
)
CLOSED_DESCRIPTORS = Feature(
    "a job that closes all descriptors while an editor is attached may lose what it writes to its files",
    replaced("pydevd:start_client", "checks that the descriptor of the connection is still the debugger's"),
)
WAKING = Feature(
    "a step in a job with several threads may take 0.2 s longer",
    replaced(f"{LIFECYCLE}:internal_run_thread", "wakes the resumed thread"),
    replaced(f"{COMM}:InternalThreadCommand.do_it", "makes a thread read its next command immediately"),
    read(f"{COMM}:InternalThreadCommand.thread_id", "the thread that executes a command", True),
    called("pydevd:PyDB.get_internal_queue_and_event", "finds the event that a stopped thread waits for"),
    called(f"{CONSTANTS}:get_thread_id", "pydevd's id for a thread"),
    called(f"{CONSTANTS}:get_global_debugger", "finds the debugger of the process"),
)
CONTINUING = Feature(
    "pressing Continue twice can make the debugger stop responding until the job ends (microsoft/debugpy#2048)",
    replaced(f"{STOPS}.add_on_resumed_callback", "responds to `continue` immediately if nothing is stopped"),
    replaced(f"{STOPS}.send_suspend_notification", "responds to `continue` before the next stop is reported"),
    assigned(f"{STOPS}._callbacks", "the callbacks that wait for the threads to resume"),
    called(f"{STOPS}._callbacks_lock", "protects the callbacks that wait for the threads to resume"),
    called(f"{NUMBERS}._lock", "protects the numbers of the last resume and the last stop"),
    read(f"{NUMBERS}._last_resume_notification_time", "the number of the last resume"),
    read(f"{NUMBERS}._last_suspend_notification_time", "the number of the last stop"),
)
INTERRUPTED = Feature(
    "after a signal handler of the job has raised an exception at a breakpoint, other threads stay stopped, and up to "
    "Python 3.11 the main thread no longer stops",
    replaced("pydevd:PyDB.do_wait_suspend", "resumes all threads if an exception ends the stop"),
    called(f"{LIFECYCLE}:resume_threads", "marks the threads as running"),
    called("pydevd:PyDB.set_trace_for_frame_and_parents", "traces functions that are already running"),
    MONITORING,
    DEBUGGER,
    ENABLE,
)
SHOWING = Feature(
    "tensors, arrays and tables are shown in full instead of summarized, and one slow `repr` or property delays all "
    "variables",
    replaced("_pydevd_bundle.pydevd_safe_repr:SafeRepr._repr_obj", "calls `repr` with a deadline"),
    replaced(
        f"{VALUES}:get_variable_details",
        "passes on the context in which a value is shown (such as repl or clipboard)",
    ),
    read(f"{EXTENSION}:StrPresentationProvider", "the kind of extension"),
    called("_pydevd_bundle.pydevd_extension_utils:extensions_of_type", "adds an extension that describes values"),
    called(
        "_pydevd_bundle.pydevd_xml:_TYPE_RESOLVE_HANDLER._type_to_str_provider_cache",
        "makes pydevd check each type again",
    ),
    replaced("_pydevd_bundle.pydevd_resolver:DefaultResolver._get_py_dictionary", "reads attributes with a deadline"),
    called("_pydevd_bundle.pydevd_resolver:DefaultResolver.get_names", "names of the attributes"),
)
RESTART = Feature(
    "a process cannot be debugged again after its debugger has ended, and a forked child of a debugged process cannot "
    "be debugged at all",
    assigned("debugpy.server.api:listen.called", "allows `debugpy.listen` to be called again"),
    assigned("pydevd:SetupHolder.setup", "removes the settings of the previous debugger"),
)
STOPPED_THREADS = Feature(
    "after debugpy's adapter is killed and another debugger attaches, threads that had been stopped or were being "
    "stepped stop again without a `stopped` event, and uncaught exceptions in existing threads are ignored",
    called("_pydevd_bundle.pydevd_additional_thread_info:set_additional_thread_info", "state of a thread"),
    called(f"{LIFECYCLE}:internal_run_thread", "marks the thread as running"),
    assigned(
        f"{THREAD_INFO}.top_level_thread_tracer_unhandled",
        "removes the function that reports uncaught exceptions to the ended debugger",
    ),
)
PUSHED_LINES = Feature(
    "breakpoints in a file that was replaced by `relay-client push` are moved to the lines of the file on the node",
    replaced(f"{API}:_get_code_lines", "reads the lines of the new content"),
    called(f"{API}:PyDevdAPI.reapply_breakpoints", "sets breakpoints in the new code"),
    DEBUGGER,
    LOCK,
)
DIALLING = Feature(
    "a job that connects to a listening editor reports the connection only after it has received the editor's "
    "breakpoints",
    replaced("debugpy.server.api:_settrace", "connects without waiting indefinitely"),
)
JOB_LISTEN = Feature(
    "a job that calls `debugpy.listen` after an editor has attached gets an error",
    replaced("debugpy.server.api:listen", "returns the port of the running debugger"),
    read("debugpy.server.api:listen.called", "whether debugpy is listening"),
)
JOB_PORT = Feature(
    "the port of a debugger that the job itself has started is unknown",
    read("debugpy.server.api:_adapter_process", "the adapter's command line contains the port"),
)
STARTING = Feature(
    "the first attach takes longer, by 0.1 s and more if many packages are installed",
    replaced("debugpy.common.log:describe_environment", "does not list the installed packages for a log that is off"),
    read("debugpy.common.log:_levels", "whether the log is on"),
    replaced("pydevd:time", "skips a pause after the start of the connection's threads"),
)
STATE = Feature(
    "a debugger that the job itself has started is not found, and a debugger that has ended cannot be started again",
    DEBUGGER,
)
REDIRECTION = (
    called(f"{REDIRECTS}:stop_redirect_stream_to_pydb_io_messages", "puts back the job's stream"),
    read(f"{REDIRECTS}:_RedirectionsHolder._pydevd_stdout_redirect_", "the redirected stdout"),
    read(f"{REDIRECTS}:_RedirectionsHolder._pydevd_stderr_redirect_", "the redirected stderr"),
    assigned(f"{REDIRECTS}:IORedirector._redirect_to", "sends no more output to the editor", True),
)
RELEASE = Feature(
    "the job stays slow after the debugger has detached",
    DEBUGGER,
    LOCK,
    ENABLE,
    called("pydevd:PyDB.patch_threads", "traces threads that start later"),
    called("pydevd:PyDB.set_tracing_for_untraced_contexts", "traces the other running threads"),
    TRACER,
    called(f"{MONKEY}:disable_trace_thread_modules", "stops tracing threads that start later"),
    called(f"{MONKEY}:enable_trace_thread_modules", "resumes the tracing of threads that start later"),
    called("pydevd_tracing:set_trace_to_threads", "replaces the trace function of other threads"),
    MONITORING,
    called("_pydevd_frame_eval.pydevd_frame_eval_main:stop_frame_eval", "stops the compiled tracing"),
    *REDIRECTION,
)
REACHING = Feature(
    "on processors other than x86, threads that were running before the debugger attached do not stop",
    DEBUGGER,
    ENABLE,
    TRACER,
    called("pydevd_tracing:_load_python_helper_lib", "shows whether pydevd reaches other threads itself"),
    MONITORING,
)
UNCAUGHT = Feature(
    "up to Python 3.11, a job that has waited for a debugger under `relay-agent run` does not stop at uncaught "
    "exceptions",
    called(f"{CONSTANTS}:get_global_debugger", "finds the debugger of the process"),
    TRACER,
    MONITORING,
)
GEVENT = Feature(
    "a job that uses gevent cannot be debugged, or its breakpoints are not hit",
    assigned("_pydev_bundle._pydev_saved_modules:ThreadingEvent", "blocks threads rather than greenlets"),
    called("debugpy.common.sockets:create_server", "is made to use a `socket` module that blocks threads"),
    MONITORING,
    read("pydevd:pydevd_gevent_integration", "its `greenlet_events` is replaced to trace all greenlets"),
    replaced("pydevd:CheckAliveThread", "makes the thread a daemon; the job would wait for it at the exit"),
    called("pydevd:PyDB.set_trace_for_frame_and_parents", "traces functions that are already running"),
    read("pydevd:PyDB.mtime", "shows whether breakpoints have changed", True),
    DEBUGGER,
    ENABLE,
)
GEVENT_HINT = Feature(
    "debugpy repeats its hint about gevent",
    replaced(f"{COMM}:notify_about_gevent_if_needed", "prints nothing"),
    replaced("_pydevd_bundle.pydevd_daemon_thread:notify_about_gevent_if_needed", "prints nothing"),
)
CHILD_WAIT = Feature(
    "a child process that is offered to an editor waits for the editor without limit",
    replaced("pydevd:PyDB.wait_for_ready_to_run", "waits for a limited time"),
    assigned("pydevd:PyDB.ready_to_run", "whether the editor has sent its breakpoints", True),
    read("pydevd:PyDB.pydb_disposed", "whether the debugger has ended", True),
    called("pydevd:PyDB.process_internal_commands", "processes commands while the child waits"),
)
EXITING = Feature(
    "a process does not exit if debugpy's adapter exited while the debugger was starting in the process",
    replaced(f"{COMM}:WriterThread.empty", "ignores messages that can no longer be sent"),
)
FORKING = Feature(
    "a forked child keeps its parent's debugger, and can wait for that debugger at a breakpoint",
    assigned(f"{CONSTANTS}:GlobalDebuggerHolder.global_dbg", "removes the reference to the debugger"),
    called(f"{CONSTANTS}:after_fork", "replaces locks that another thread held"),
    assigned("threading:Thread.additional_info", "removes pydevd's state of the thread", True),
    *REDIRECTION,
)
REMOVED_DIRECTORY = Feature(
    "an editor cannot attach to a process whose working directory was removed",
    replaced("_pydevd_bundle.pydevd_process_net_command_json:os", "reads the working directory"),
    replaced("pydevd_file_utils:os", "makes the paths of files absolute"),
    replaced("pydevd_file_utils:os_path_real_path", "resolves links in the paths of files"),
)
FOLLOWING = Feature(
    "an editor that attaches cannot follow child processes unless the job has `--debug-follow-children`",
    replaced(f"{PROCESSOR}._set_debug_options", "reads `subProcess` in `attach`"),
    replaced(f"{MONKEY}:_get_apply_arg_patching", "decides whether a new process is followed"),
    called(f"{MONKEY}:patch_new_process_functions", "detects processes that are started"),
    assigned("pydevd:SetupHolder.setup", "lets children follow their own children"),
    DEBUGGER,
)
CHILDREN = Feature(
    "child processes that the debugger follows are debugged without relay-debug's improvements to debugpy",
    called(f"{EXTENSION}:DebuggerEventHandler", "base class of the extension"),
    replaced(f"{EXTENSION}:DebuggerEventHandler.on_debugger_modules_loaded", "prepares pydevd in each child process"),
)
UNATTACHED_AGENT = Feature(
    "an agent that is started while a debugger is attached appears in the editor as a child process",
    called(f"{MONKEY}:skip_subprocess_arg_patch", "starts the agent without a debugger"),
)
UNREACHED = Feature(
    "no line reports that breakpoints are not hit because of another tool, in child processes that are not followed, "
    "in modules that were loaded from other files, in lines that have run, or in functions that torch.compile has "
    "compiled, or that their conditions or log messages raise; logpoints with `@snap` and `@hold` print their messages",
    replaced(f"{API}:PyDevdAPI.notify_configuration_done", "examines the process when an editor has attached"),
    read("pydevd:PyDB.api_received_breakpoints", "the files with breakpoints", True),
    replaced("pydevd:PyDB.handle_breakpoint_condition", "reports a condition that raises"),
    replaced("pydevd:PyDB.handle_breakpoint_expression", "reports a log message that raises; takes snapshots"),
    assigned("_pydevd_bundle.pydevd_breakpoints:LineBreakpoint.is_logpoint", "lets `@hold` stop", True),
    read("pydevd:PyDB.file_to_id_to_line_breakpoint", "the lines of the breakpoints", True),
    read("pydevd:PyDB.cmd_factory", "creates the message for the editor", True),
    called(f"{FACTORY}.make_console_message", "creates a line for the debug console"),
    read("pydevd:SetupHolder.setup", "whether child processes are followed"),
    assigned("pydevd_tracing:TracingFunctionHolder._warnings_shown", "the calls of `sys.settrace` by the job"),
    MONITORING,
    WRITER,
)
SNAPSHOTS = Feature(
    "a logpoint whose message begins with `@snap` prints the message",
    called("pydevd_file_utils:map_file_to_client", "finds the path of a file for the editor"),
    read("pydevd:PyDB.cmd_factory", "creates the line for the debug console", True),
    WRITER,
    MESSAGE,
)
OUTPUT = Feature(
    "a developer can step into debugpy's code when relay-agent logs a line",
    read(f"{REDIRECTS}:IORedirector._redirect_to", "the job's own stderr", True),
)
HIDDEN_THREADS = Feature(
    "relay-agent's thread is listed in the editor and is paused whenever the job is paused",
    assigned(f"{DAEMON}.is_pydev_daemon_thread", "hides relay-agent's threads from pydevd", True),
    assigned(f"{DAEMON}.pydev_do_not_trace", "keeps relay-agent's threads running while the job is stopped", True),
)
RECOVERY = Feature(
    "a debugger that no longer responds prevents other debuggers from attaching until the job ends",
    DEBUGGER,
    WRITER,
    LOCK,
    called("pydevd:PyDB.dispose_and_kill_all_pydevd_threads", "ends the debugger and resumes the job"),
    read("pydevd:PyDB.created_pydb_daemon_threads", "the debugger's threads", True),
)

FEATURES = tuple(each for each in list(globals().values()) if isinstance(each, Feature))
"""All of them, in this order, which is that of the documentation."""
