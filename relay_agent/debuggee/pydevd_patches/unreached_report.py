"""Patch that reports, when an editor has attached, which code its breakpoints do not reach.

debugpy verifies a breakpoint if its file exists. It cannot be hit if another tool has taken the debugger's trace
function, in a child process that is not followed, if the job has loaded the module from another file or not at all, if
its line has already run, or if torch.compile has compiled the function. It does not stop the thread if its condition
raises. Each such fact is one line in the job's log and in the debug console. Nothing is examined before an editor has
attached, and nothing after it has left. Jobs that use gevent are not examined: with its locks, pydevd's reader could
wait for the examination.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from relay_agent.debuggee import tracing
from relay_agent.debuggee.pydevd_patches import child_processes, snapshots
from relay_agent.debuggee.unreached import breakpoints, children
from relay_agent.debugpy_internals.table import SNAPSHOTS, UNREACHED
from relay_agent.job.gevent_originals import is_active, keep_thread, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.stderr import describe_exception, write_line
from relay_agent.stacks.stopped import stopped_threads

INTERVAL = 1.0
"""Seconds between two checks of the trace function."""
MAX_PAUSE = 64
"""Maximum number of intervals between two searches for child processes; the pause doubles if one finds none."""
SHORT_LIVED = 3
"""Number of searches that find only child processes that end before the next check, after which these are reported. A
single one may be a child that has not become another program yet."""
LOAD_CHECKS = 10
"""Number of checks in which a running process has not loaded a file with breakpoints, after which this is reported."""
START_CHECKS = 3
"""Maximum number of intervals that pydevd may take to start tracing."""
SEND_TIME = 0.2
"""Seconds that pydevd's thread may take to send a line."""


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    from _pydevd_bundle.pydevd_api import PyDevdAPI  # noqa: PLC0415 - in debug runs only, as below
    from pydevd import PyDB  # noqa: PLC0415
    from pydevd_tracing import TracingFunctionHolder  # noqa: PLC0415

    notify = PyDevdAPI.notify_configuration_done

    def notify_and_examine(api: Any, debugger: Any) -> None:
        """Handle `configurationDone`, with which an editor completes its attach."""
        examination = None
        if not (UNREACHED.is_off or is_active()):
            with UNREACHED.guarded():
                # Before the job continues, which may replace the trace function.
                examination = _Examination(debugger, TracingFunctionHolder._warnings_shown)  # noqa: SLF001 - in the table
        notify(api, debugger)
        if examination is not None:
            with UNREACHED.guarded():
                start_helper(examination.run, "relay-agent examination")

    PyDevdAPI.notify_configuration_done = notify_and_examine
    PyDB.handle_breakpoint_condition = _condition
    PyDB.handle_breakpoint_expression = _log_message


def _condition(debugger: Any, info: Any, breakpoint_: Any, frame: Any) -> bool:
    """Return whether a breakpoint stops the thread; as in debugpy, it does not if its condition raises."""
    is_met = breakpoint_.handle_hit_condition(frame) or (
        bool(breakpoint_.condition) and bool(_evaluate("condition", breakpoint_.condition, frame))
    )
    if is_met and breakpoint_.expression is not None:
        _reached(debugger, breakpoint_, info, frame)
    return is_met


def _log_message(debugger: Any, breakpoint_: Any, info: Any, frame: Any) -> None:
    """Do what a logpoint is for, unless it has a condition, which pydevd evaluates after this."""
    info.pydev_message = ""
    if not breakpoint_.has_condition:
        _reached(debugger, breakpoint_, info, frame)


def _reached(debugger: Any, breakpoint_: Any, info: Any, frame: Any) -> None:
    """Set the text that a logpoint writes, "" if it raises; `@snap` takes a snapshot, and `@hold` stops the thread."""
    command = re.match("['\"]@(snap|hold)\\b", breakpoint_.expression)

    def message() -> str:
        text = str(_evaluate("log message", breakpoint_.expression, frame) or "")
        return text[len(command[0]) - 1 :].strip() if command else text

    if command and command[1] == "snap" and SNAPSHOTS.is_available():
        if not (_is_inside_line(frame) or snapshots.take(debugger, breakpoint_, frame, message)):
            _report_once(frame, snapshots.LEFT_OUT, lambda place: f"the logpoint at {place} {snapshots.LEFT_OUT}")
        return
    info.pydev_message = message()
    if command and command[1] == "hold":
        breakpoint_.is_logpoint = False
        if info.pydev_message:
            debugger.writer.add_command(debugger.cmd_factory.make_io_message(f"{info.pydev_message}\n", "1"))


def _evaluate(what: str, expression: str, frame: Any) -> Any:
    """Evaluate an expression of a breakpoint, and report its exception in one line, once for each editor."""
    try:
        return eval(expression, frame.f_globals, frame.f_locals)  # noqa: S307 - as debugpy does
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the expression may raise anything
        if isinstance(error, NameError) and _is_inside_line(frame):
            return None
        why = describe_exception(error)
        _report_once(frame, expression, lambda place: f"the {what} of the breakpoint at {place} has no effect: {why}")
    return None


def _report_once(frame: Any, about: str, text: Callable[[str], str]) -> None:
    """Report a fact about the breakpoint at a line, once for each editor; `text` is called with the place."""
    latest, key = _Examination.latest, (frame.f_code.co_filename, frame.f_lineno, about)
    if latest is not None and key not in latest.reported:
        latest.reported.add(key)
        latest.report(text(f"{Path(key[0]).name}:{key[1]}"))


def _is_inside_line(frame: Any) -> bool:
    """Return whether a frame is that of a lambda or comprehension, on a line that the function around it executes."""
    code = frame.f_code
    is_inner = code.co_name.startswith("<") and code.co_name != "<module>"
    return bool(is_inner and frame.f_lineno == code.co_firstlineno)


def show(line: str) -> None:
    """Write a line to the job's log, and to the debug console of the editor that is attached, if there is one."""
    write_line(line)
    latest = _Examination.latest
    if latest is not None and latest.is_current():
        with UNREACHED.guarded():
            latest.show(line)
        time.sleep(SEND_TIME)


class _Examination:
    """Examines the process while an editor is attached.

    Args:
        debugger: pydevd's debugger.
        warnings: See `TracerWatch`.
    """

    latest: _Examination | None = None
    """The examination for the last editor that attached."""

    def __init__(self, debugger: Any, warnings: MutableMapping[str, object]) -> None:
        import debugpy  # noqa: PLC0415 - as above; while the interpreter exits, an import may fail

        self._is_client_connected = debugpy.is_client_connected
        self.reported: set[tuple[str, int, str]] = set()
        """Places of breakpoints, each with the expression or subject about which something was reported."""
        self._watch = breakpoints.TracerWatch(warnings)
        self._writer, self._messages = debugger.writer, debugger.cmd_factory
        self._breakpoints = debugger.api_received_breakpoints
        self._lines = debugger.file_to_id_to_line_breakpoint
        self._adapter_port = int(debugger.writer.sock.getpeername()[1])

    def run(self) -> None:
        """Show what is found, until the editor has left or nothing more can be found."""
        with UNREACHED.guarded():
            _Examination.latest = self
            checks = [self._tracers(), self._children(), self._files(), self._passed(), self._compiled()]
            while checks := [each for each in checks if self.is_current() and next(each, False)]:
                time.sleep(INTERVAL)
        keep_thread()

    def is_current(self) -> bool:
        """Return whether the editor for which this examination was started is attached."""
        return _Examination.latest is self and bool(self._is_client_connected())

    def _tracers(self) -> Iterator[bool]:
        from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING  # noqa: PLC0415 - in debug runs only

        if PYDEVD_USE_SYS_MONITORING:
            # In a child process, pydevd's reader can be ahead of the thread that traces.
            for _ in range(START_CHECKS):
                if breakpoints.foreign_tool():
                    yield True
            self.report(breakpoints.foreign_tool())
            return
        self.report(tracing.unreached_threads())
        while True:
            for line in self._watch.lines():
                self.report(line)
            yield True

    def _children(self) -> Iterator[bool]:
        is_followed = child_processes.is_active()
        ended: list[set[int]] = []
        pause = 0
        while True:
            if found := set(children.unfollowed_children(self._adapter_port)):
                ended.append(set(found))
                pause = 0
                yield True  # a child that has just been forked becomes another program, or connects to the debugger
                found.intersection_update(children.unfollowed_children(self._adapter_port))
            if found:
                self.report(children.describe(sorted(found), is_followed=is_followed))
            if found or is_followed:  # those that start later are followed
                return
            if len(ended) == SHORT_LIVED:
                self.report(children.describe_ended(set().union(*ended)))
                return
            for _ in range(min(2**pause, MAX_PAUSE)):
                yield True
            pause += 1

    def _files(self) -> Iterator[bool]:
        examined: set[str] = set()
        checks: Counter[str] = Counter()
        last = None
        while True:
            pending = {file for file, _ in list(self._breakpoints.values())} - examined
            if last != (state := (pending, len(sys.modules))):
                last = state
                for file in sorted(pending):
                    if (line := breakpoints.describe_other_file(file)) is not None:
                        examined.add(file)
                        self.report(line)
            checks.update(pending - examined)
            for file in [file for file, count in checks.items() if count == LOAD_CHECKS]:
                if stopped_threads() or breakpoints.is_executed(file):
                    checks[file] = 0
                    continue
                self.report(
                    f"no module of the job was loaded from {file} in {LOAD_CHECKS} s, so its breakpoints are not hit. "
                    "hint: check whether the job imports this file, and pathMappings in launch.json"
                )
            yield True

    def _passed(self) -> Iterator[bool]:
        seen: set[breakpoints.Place] = set()
        while True:
            for place in self._places() - seen:
                seen.add(place)
                if breakpoints.has_run(place):
                    self.report(
                        f"line {place.line} of {Path(place.file).name} ran before its breakpoint was set. hint: let "
                        "the job wait for a debugger above that line or, with relay-agent run, before the first one"
                    )
            yield True

    def _compiled(self) -> Iterator[bool]:
        while not (self._places() and (line := breakpoints.describe_compiled())):
            yield True
        self.report(line)

    def _places(self) -> set[breakpoints.Place]:
        """Return where the line breakpoints are."""
        files = list(self._lines.items())
        return {breakpoints.Place(file, one.line) for file, found in files for one in list(found.values())}

    def show(self, line: str) -> None:
        """Write a line to the debug console."""
        self._writer.add_command(self._messages.make_console_message(f"relay-agent: {line}\n"))

    def report(self, line: str) -> None:
        """Write a line to the job's log and to the debug console; nothing for ""."""
        if line:
            write_line(line)
            self.show(line)
