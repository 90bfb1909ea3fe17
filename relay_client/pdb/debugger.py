"""The debugger behind the commands: a debug session with its breakpoints, the job's source, and the screen."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import logging
import os
import posixpath
import select
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from relay_client.dap import DapClient, HowEnded, RequestFailed, readable
from relay_client.editor.messages import IN_C_CODE
from relay_client.editor.notices import PAUSE_TIMEOUT
from relay_client.pdb.breakpoints import Breakpoint, Breakpoints, BreakpointSpec, NotSet, parse_spec
from relay_client.pdb.session import Frame, NotStopped, Session
from relay_core.agent_api.stacks import is_library
from relay_core.dap.messages import exception_of
from relay_core.errors import RelayDebugError, UsageError
from relay_core.foreign import escape_controls, is_remote_path, terminal_text

logger = logging.getLogger(__name__)


# The job's source lines, and the functions in them.
#
# The lines come from the job's `linecache`, because a file with the same name on this machine may be a different
# version. If the job is running and cannot evaluate an expression, the lines are read from a local file. The job
# chooses its path, so only regular files of limited size are read.

Place = tuple[str, int]
"""A path in the job, and a line counted from 1."""
MAX_LOCAL_FILE = 4 * 1024 * 1024
"""Maximum size of a local source file, in bytes."""


class Source:
    """Cache of source lines; each line is requested from the job once.

    Args:
        evaluate: Evaluates an expression in the job and returns its value, a literal.
    """

    def __init__(self, evaluate: Callable[[str], Awaitable[object]]) -> None:
        self._evaluate = evaluate
        self._files: dict[str, list[str]] = {}
        self._lines: dict[Place, str] = {}

    async def file(self, path: str) -> list[str]:
        """Return the lines of a file, with their line breaks; an empty list if it is not available."""
        if path not in self._files:
            found = await self._evaluate_or_none(f"''.join(__import__('linecache').getlines({path!r}))")
            if not isinstance(found, str):
                return linecache.getlines(path) if _is_local_source(path) else []
            self._files[path] = found.splitlines(keepends=True)
        return self._files[path]

    async def lines(self, places: Sequence[Place]) -> list[str]:
        """Return single lines without indentation; "" for those that are not available."""
        missing = [place for place in places if place not in self._lines]
        if missing:
            expression = f"[__import__('linecache').getline(*place).strip() for place in {missing!r}]"
            found = await self._evaluate_or_none(expression)
            if not isinstance(found, list) or len(found) != len(missing):
                return [linecache.getline(*place).strip() if _is_local_source(place[0]) else "" for place in places]
            self._lines.update(zip(missing, map(str, found), strict=True))
        return [self._lines[place] for place in places]

    async def _evaluate_or_none(self, expression: str) -> object:
        try:
            return await self._evaluate(expression)
        except RelayDebugError:  # the job is running or has exited
            return None


def _is_local_source(path: str) -> bool:
    """Return whether a path names a local file that can be read without blocking, and without much memory."""
    if is_remote_path(path):  # reading it would connect to that machine
        return False
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # it does not exist, or the path contains a null character
        return False
    return stat.S_ISREG(found.st_mode) and 0 < found.st_size <= MAX_LOCAL_FILE  # /proc reports 0 for endless files


def numbered(lines: Sequence[str], first: int, last: int, *, current: int = 0) -> list[str]:
    """Return lines `first` to `last` of a file with their numbers, in pdb's format; line `current` is marked."""
    shown = range(max(first, 1), min(last, len(lines)) + 1)
    return [
        f"{number:>3} {'->' if number == current else '  '} {lines[number - 1].rstrip()}".rstrip() for number in shown
    ]


def function_lines(lines: Sequence[str], line: int) -> tuple[int, int]:
    """Return the first and last line of the innermost function around a line; outside functions, of the file."""
    function = _function_at(lines, line)
    return (function.lineno, function.end_lineno or line) if function else (1, len(lines))


def argument_names(lines: Sequence[str], line: int) -> list[str] | None:
    """Return the names of the parameters of the innermost function around a line; None outside functions."""
    function = _function_at(lines, line)
    if function is None:
        return None
    found = function.args
    names = [*found.posonlyargs, *found.args, found.vararg, *found.kwonlyargs, found.kwarg]
    return [name.arg for name in names if name is not None]


def _function_at(lines: Sequence[str], line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None  # written for another version of Python, or not Python
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


# The terminal of the prompt: the input line is at the bottom, and the job's output appears above it.

_CLEAR_LINE = "\r\x1b[K"
MAX_UNFINISHED = 64 * 1024
"""Maximum number of characters of output without a line break; then a line break is added."""
MAX_TYPED = 64 * 1024
"""Maximum number of bytes that are read at once while no line is being read; a terminal holds 4 KiB."""


class Screen:
    """Reads lines in one thread and shows text from any thread.

    Line editing and history use `readline` if available. If stdin is not a terminal, its lines are read as commands
    without a prompt.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompt: str | None = None
        """The prompt on the last line while a line is being read; None otherwise."""
        self._unfinished = ""
        """Output of the job since its last line break."""
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._readline = _find_readline() if self.is_terminal else None

    def ask(self, prompt: str) -> str:
        """Return the next line.

        Raises:
            EOFError: stdin has ended, or the user has pressed Ctrl-D.
            KeyboardInterrupt: the user has pressed Ctrl-C.
        """
        if sys.stdin is None:  # it was closed before this program started
            raise EOFError
        if not self.is_terminal:
            prompt = ""
        with self._lock:
            self._flush()
            self._prompt = prompt
        try:
            return input(prompt)
        finally:
            with self._lock:
                self._prompt = None

    def typed(self) -> list[str]:
        """Return the lines that were typed at the terminal while no line was being read; the last is "" for Ctrl-D."""
        found = ["\n"]
        with contextlib.suppress(OSError):  # Windows cannot ask; there, they are the answers to the next prompts
            while self.is_terminal and found[-1] and select.select([sys.stdin], [], [], 0)[0]:
                data = os.read(sys.stdin.fileno(), MAX_TYPED).decode(errors="replace")
                found += data.splitlines(keepends=True) or [""]
        return found[1:]

    def show(self, text: str) -> None:
        """Show text from the debugger, starting on a new line; what the job put into it cannot control the terminal."""
        with self._lock:
            self._flush()
            self._write(f"{terminal_text(text)}\n")

    def show_output(self, text: str) -> None:
        """Show output from the job, line by line; a carriage return, as in progress bars, also ends a line.

        Of its escape sequences, only colours reach the terminal.
        """
        with self._lock:
            self._unfinished += text
            end = max(self._unfinished.rfind("\n"), self._unfinished.rfind("\r")) + 1
            complete, self._unfinished = self._unfinished[:end], self._unfinished[end:]
            if complete:
                self._write(terminal_text(complete, is_output=True))
            if len(self._unfinished) > MAX_UNFINISHED:
                self._flush()

    def write(self, text: str) -> None:
        """Show lines of this program's log above the prompt; they are printable already."""
        with self._lock:
            self._flush()
            self._write(text)

    def _flush(self) -> None:
        if self._unfinished:
            self._write(terminal_text(f"{self._unfinished}\n", is_output=True))
            self._unfinished = ""

    def _write(self, text: str) -> None:
        if self._prompt:
            typed = self._readline.get_line_buffer() if self._readline is not None else ""
            text = f"{_CLEAR_LINE}{text}{self._prompt}{typed}"
        with contextlib.suppress(OSError):  # stdout is closed; detaching from the job must still work
            sys.stdout.write(text)
            sys.stdout.flush()


def _find_readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - importing it changes the behaviour of input()
    except ImportError:  # Windows
        return None
    return readline


# Releases child processes that wait for their own debug session.
#
# With `--debug-follow-children`, debugpy makes each child process of a job wait for a debug session. The prompt debugs
# only one process, so it attaches to each child and detaches immediately.

RESPONSE_TIMEOUT = 30.0
"""Seconds to wait for each response from a child; a child that is waiting for a session is otherwise idle."""

Connect = Callable[[], Awaitable[DapClient]]
"""Opens a new connection to the job's debug adapter."""


class DebugConnection(NamedTuple):
    """A connection to the debug adapter of a job."""

    client: DapClient
    """Connected, but not yet attached."""
    connect: Connect
    crashed: bool = False
    """True if the job is held at an exception and stops there once a debugger attaches."""
    cwd: str = ""
    """The directory in which the job was started, for relative file names in breakpoints; "" if unknown."""
    how_ended: HowEnded | None = None
    """Called when the debugger has reported the end of the job."""
    replaced: str = ""
    """A sentence about the stop of the debugger that this connection replaces if it can attach; "" if it had none."""
    waits: Callable[[], str] = lambda: ""
    """Returns for which ranks the job waits, such as `in all_reduce, waiting for rank 2`; "" if it does not wait."""
    outage: Callable[[], RelayDebugError | None] = lambda: None
    """Returns why nothing reaches the job now, such as `the tunnel to node-1 is reconnecting`; None if it is connected.
    """


async def release_child(connect: Connect, pid: int) -> None:
    """Let a waiting child process continue without a debugger."""
    try:
        async with await connect() as client:
            await client.attach({}, exceptions=[], within=RESPONSE_TIMEOUT, subProcessId=pid)
            await client.request("disconnect", {"terminateDebuggee": False}, within=RESPONSE_TIMEOUT)
    except RelayDebugError as error:  # the child or the job has exited
        logger.debug("process %d was not released: %s", pid, error)


RUNNING = "the job is running; Ctrl-C pauses it, q or Ctrl-D detaches"
CRASH_TIMEOUT = 15.0
"""Seconds to wait for the `stopped` event from a process that is held at an exception and polls for its debugger."""

MAX_AGENT_STEPS = 8
"""Maximum number of steps out of relay_agent's waiting function into the job's code. The function's lines are hidden,
so one step should suffice."""

_IS_IN_AGENT_CODE = (
    "any('/relay_agent/' in file and '/pydevd_patches/' not in file for file in"
    " (frame.f_code.co_filename for frame, _ in __import__('traceback').walk_stack(None)))"
)
"""Ignores frames of relay_agent's pydevd patches, which may be evaluating this expression."""
_FIND_FILES = (
    "[m.__file__ for m in list(__import__('sys').modules.values())"
    " if (getattr(m, '__file__', None) or '').endswith({suffix!r})]"
)
"""The files of the loaded modules whose paths have this end."""
_FIND_FUNCTION = (
    "(lambda code: (code.co_filename, min((line for *_, line in code.co_lines() if line and line >"
    " code.co_firstlineno), default=code.co_firstlineno)))"
    "((lambda f: __import__('inspect').unwrap(getattr(f, '__func__', f)))({function}).__code__)"
)
"""The file of a function, and the first line of its body."""


class Debugger:
    """One debug session at a prompt.

    Args:
        connection: The connection to the job.
        screen: Shows the output of the debugger and of the job.
    """

    def __init__(self, connection: DebugConnection, screen: Screen) -> None:
        self.connection = connection
        self.screen = screen
        release = functools.partial(release_child, connection.connect)
        self.session = Session(connection.client, screen.show_output, self.show_stop, release, connection.how_ended)
        self.breakpoints = Breakpoints(self.session)
        self.source = Source(self.session.value)
        self.listed = 0
        """The last line that `list` has shown; 0 after every step and frame change."""
        self.exits = False
        """Whether the job is stopped at, or held at, the exception with which it exits when the debugger detaches."""
        self.refused = ""
        """The last line, if it was refused because the job would exit."""
        self.quit_requested = False
        """True once the user has entered `quit`."""

    async def begin(self, breakpoints: Sequence[BreakpointSpec], *, stop: bool) -> None:
        """Attach, and show where the job has stopped; without `stop`, wait until it stops at a breakpoint.

        If there is none and the commands come from a pipe, do not wait: a command can set one, and their end detaches.

        Args:
            breakpoints: Breakpoints with file and line.
            stop: Whether to pause the job.

        Raises:
            UsageError: the directory of a file is unknown.
            RelayDebugError: attaching failed.
        """
        self.exits = crashed = self.connection.crashed
        await self._attach(breakpoints, pause=stop and not crashed)
        if not (stop or crashed):
            self.screen.show(RUNNING)
            if not (self.breakpoints.all or self.screen.is_terminal):
                return
        if crashed and not await self.session.wait(CRASH_TIMEOUT):
            self.screen.show("the job has not stopped at the exception; pausing it instead")
            await self.session.pause_and_wait(PAUSE_TIMEOUT)
        stopped = await self.session.wait(PAUSE_TIMEOUT if stop or crashed else None)
        if stopped and await self._leave_agent_code():
            await self.show_stop()
        else:
            await self.show_still_running()

    async def _attach(self, breakpoints: Sequence[BreakpointSpec], *, pause: bool) -> None:
        for spec in breakpoints:
            self.breakpoints.add(self._from_cwd(spec.file), spec.line, spec.condition)
        by_path = self.breakpoints.by_path()
        dap_by_path = {path: [one.as_dap() for one in here] for path, here in by_path.items()}
        results = await self.session.attach(dap_by_path, pause=pause)
        if self.connection.replaced:
            self.screen.show(escape_controls(self.connection.replaced))
        for path, here in by_path.items():
            with readable():
                for one, result in zip(here, results[path], strict=False):
                    one.update(result)
        for one in [*self.breakpoints.all]:
            try:
                await self.breakpoints.check(one)
            except NotSet as error:
                self.screen.show(f"*** {escape_controls(str(error))}")
            else:
                self.show_breakpoint(one)

    async def _leave_agent_code(self) -> bool:
        """Step out of relay_agent's code, where a job waits for its debugger; return False if the job does not stop."""
        for _ in range(MAX_AGENT_STEPS):
            if self.session.end_reason or not await self._is_in_agent_code():
                break
            if not await self.session.resume("stepIn", PAUSE_TIMEOUT):  # to the next line that is not hidden
                return False
        return True

    async def _is_in_agent_code(self) -> bool:
        """Whether the job is stopped in relay_agent's code, whose frames debugpy hides, so the stack may be empty."""
        await self.session.select_stopped_thread()
        if self.session.reason.get("reason") in {"exception", "breakpoint"}:  # a stop on request, in the job's code
            return False
        with contextlib.suppress(RequestFailed):  # the thread is in C code
            return not self.session.frames or await self.session.evaluate(_IS_IN_AGENT_CODE) == "True"
        return False

    async def show_stop(self) -> None:
        """Show where the job has stopped, or how it has ended."""
        if self.session.end_reason:
            self.screen.show(escape_controls(self.session.end_reason))
            return
        try:
            await self._show_stop()
        except RelayDebugError as error:  # the job has continued or exited in the meantime
            self.screen.show(f"*** {escape_controls(error.sentence)}")

    async def _show_stop(self) -> None:
        session = self.session
        await session.select_stopped_thread()
        self.listed = 0
        with readable():
            hit = list(session.reason.get("hitBreakpointIds", []))
        await self.breakpoints.clear_hit(hit, [(frame.path, frame.line) for frame in session.frames[:1]])
        if (found := exception_of(session.reason)) is not None:
            self.screen.show(f"*** {escape_controls(str(found))}")
        name = escape_controls((await session.threads()).get(session.thread, ""))
        self.exits = found is not None and name == "MainThread"
        if name != "MainThread":
            self.screen.show(f"in thread {session.thread}, {name}; enter 'threads' to list all threads")
        await self.show_place()

    def show_breakpoint(self, one: Breakpoint) -> None:
        """Show a breakpoint that was set, and a warning if its condition may be invalid."""
        self.screen.show("\n".join(filter(None, [str(one), escape_controls(one.warning)])))

    async def show_place(self) -> None:
        """Show the selected frame and its source line."""
        frame = self.session.frame
        self.screen.show("\n".join(await self.describe([frame])))

    async def show_still_running(self) -> None:
        """Show that a pause has not taken effect yet, and the innermost frame of the main thread."""
        self.screen.show(f"the job {IN_C_CODE}; enter 'c' to wait for the stop, or 'w' to show the stack")
        try:
            frames = (await self.session.main_stack())[:1]
            self.screen.show("\n".join(await self.describe(frames)))
        except RelayDebugError as error:
            self.screen.show(f"*** {escape_controls(error.sentence)}")

    async def describe(self, frames: list[Frame], current: int = 0) -> list[str]:
        """Return the frames and their source lines as text; the frame with index `current` is marked."""
        code = await self.source.lines([(frame.path, frame.line) for frame in frames])
        return [
            f"{'>' if number == current else ' '} {frame.place}" + (f"\n-> {escape_controls(line)}" if line else "")
            for number, (frame, line) in enumerate(zip(frames, code, strict=True))
        ]

    async def set_breakpoint(self, text: str, *, temporary: bool) -> None:
        """Set a breakpoint for an argument of `break`, and show it.

        Raises:
            RelayDebugError: the location does not exist.
        """
        path, line, condition = await self.find(text)
        try:
            self.show_breakpoint(await self.breakpoints.set(path, line, condition, temporary=temporary))
        except NotSet as error:
            with contextlib.suppress(RelayDebugError):  # the job is running
                found = await self._loaded_files(posixpath.basename(path))
                error.hint = f"loaded files of this name: {', '.join(found) or 'none'}"
            raise

    async def find(self, text: str) -> tuple[str, int, str]:
        """Return path, line and condition for an argument of `break`.

        Raises:
            RelayDebugError: the location does not exist.
        """
        spec = parse_spec(text)
        if spec.function:
            return (*await self._find_function(spec.function), spec.condition)
        return await self._find_file(spec.file), spec.line, spec.condition

    async def _find_function(self, function: str) -> tuple[str, int]:
        try:
            found = await self.session.value(_FIND_FUNCTION.format(function=function))
        except RequestFailed:
            raise UsageError(
                f"'{function}' is neither a line nor a function here", hint="use b 12, b file.py:12, b f or b 12, x > 1"
            ) from None
        if not isinstance(found, tuple):
            raise UsageError(f"'{function}' is not a Python function")
        with readable():
            return str(found[0]), int(found[1])

    async def _find_file(self, name: str) -> str:
        """Return the path of a file in the job: from the stack, the loaded modules, or the job's working directory."""
        if not name:
            return self.session.frame.path
        if posixpath.isabs(name):
            return name
        suffix = f"/{posixpath.normpath(name)}"
        for frame in self.session.frames:
            if frame.path.endswith(suffix):
                return frame.path
        try:
            loaded = await self._loaded_files(name)
            found = [file for file in loaded if "/" in name or not is_library(file)]  # it may be a file not loaded yet
            return found[0] if found else str(await self.session.value(f"__import__('os').path.abspath({name!r})"))
        except NotStopped:
            return self._from_cwd(name)

    async def _loaded_files(self, name: str) -> list[str]:
        """Return the files of loaded modules with this name, or this relative path as their end; libraries come last.

        Raises:
            NotStopped: the job is running.
        """
        found = await self.session.value(_FIND_FILES.format(suffix=f"/{posixpath.normpath(name)}"))
        return sorted(map(str, found), key=is_library) if isinstance(found, list) else []

    def _from_cwd(self, name: str) -> str:
        cwd = self.connection.cwd
        if not posixpath.isabs(name) and not cwd:
            raise UsageError(
                f"the location of '{name}' is unknown while the job is running", hint="use the absolute path"
            )
        return posixpath.normpath(posixpath.join(cwd, name))
