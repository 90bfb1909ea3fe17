"""The commands of the prompt: they run the job, set breakpoints, and show frames, source and values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay_client.dap import RequestFailed, readable
from relay_client.pdb.debugger import Debugger, argument_names, function_lines, numbered
from relay_core.errors import RelayDebugError, UsageError
from relay_core.foreign import escape_controls

# The table of commands, with the parser and the execution of command lines.
#
# A line whose first word is not a command is executed as Python code in the selected frame. The same applies to an
# assignment to the name of a command, such as `n = 5`, and to any text after a `!`.

Action = Callable[[Debugger, str], Awaitable[None]]


@dataclass(frozen=True)
class Command:
    """One command; its help text is the first line of the function's docstring."""

    names: tuple[str, ...]
    argument: str
    run: Action
    resumes: bool = False
    """Whether it lets a stopped job run."""

    @property
    def usage(self) -> str:
        """Its names and arguments."""
        return f"{', '.join(self.names)} {self.argument}".rstrip()

    @property
    def help(self) -> str:
        """The description in one line."""
        return (self.run.__doc__ or "").splitlines()[0]


COMMANDS: dict[str, Command] = {}
"""The commands by name; a command with several names is listed under each."""
REPEATABLE = frozenset({"n", "next", "s", "step", "u", "up", "d", "down", "l", "list", "unt", "until"})
"""Commands that an empty line repeats; none of them evaluates an expression."""

_ASSIGNMENT = re.compile(r"(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)|:(?!\s*\d)")
"""Matches the start of the text after the target of an assignment or a type annotation."""


def command(*names: str, argument: str = "", resumes: bool = False) -> Callable[[Action], Action]:
    """Return a decorator that adds a function to the table.

    Args:
        names: The names of the command; the first is the shortest.
        argument: Placeholder for the argument in the help text.
        resumes: Whether it lets a stopped job run.
    """

    def register(run: Action) -> Action:
        COMMANDS.update(dict.fromkeys(names, Command(names, argument, run, resumes)))
        return run

    return register


def split(line: str) -> tuple[str, str]:
    """Return the command and the argument of a line; for Python code, "" and the code."""
    line = line.strip()
    if line.startswith("!"):
        return "", line[1:].strip()
    if line.startswith("?"):
        return "help", line[1:].strip()
    if re.fullmatch(r"(pp?\s*)?locals\(\)", line):  # debugpy evaluates `locals()` to locals and globals
        return "locals", ""
    word, _, argument = line.partition(" ")
    if match := re.match(r"(pp?)(\(.*)", line):
        word, argument = match[1], match[2]
    if word not in COMMANDS or _ASSIGNMENT.match(argument.strip()):
        return "", line
    return word, argument.strip()


def is_quit(line: str) -> bool:
    """Return whether a line is the command that detaches."""
    return COMMANDS.get(split(line)[0]) is COMMANDS["quit"]


async def execute(debugger: Debugger, line: str) -> None:
    """Execute a line; show the error if it fails."""
    name, argument = split(line)
    if debugger.session.is_executing and not is_quit(line):
        debugger.screen.show("the job is still executing the previous command")
    refused, debugger.refused = debugger.refused, ""
    try:
        if name and COMMANDS[name].resumes and debugger.exits and debugger.session.is_stopped and line != refused:
            debugger.refused = line
            again = f"to let it run nevertheless, enter '{line}' again"
            raise UsageError("not executed: the job ends with this exception once it runs", hint=again)
        if name:
            await COMMANDS[name].run(debugger, argument)
        elif argument and (result := await debugger.session.evaluate(argument, "repl")):
            debugger.screen.show(result)
    except RelayDebugError as error:
        debugger.screen.show(f"*** {_error_line(error)}")


def _error_line(error: RelayDebugError) -> str:
    """Return the error as one line; for an exception in the job, the last line of its traceback."""
    reason = error.reason.strip() if isinstance(error, RequestFailed) else ""
    return escape_controls(reason.splitlines()[-1] if reason else str(error))


# The commands that run the job, and those that set breakpoints.


@command("n", "next", resumes=True)
async def step_over(debugger: Debugger, _argument: str) -> None:
    """Run to the next line of the selected frame's function."""
    await _leave(debugger, "next")


@command("s", "step", resumes=True)
async def step_in(debugger: Debugger, _argument: str) -> None:
    """Run to the next line, stepping into called functions."""
    await _go(debugger, "stepIn")


@command("r", "return", resumes=True)
async def step_out(debugger: Debugger, _argument: str) -> None:
    """Run until the selected frame's function returns."""
    await _leave(debugger, "stepOut")


@command("c", "cont", "continue", resumes=True)
async def continue_running(debugger: Debugger, _argument: str) -> None:
    """Continue; Ctrl-C pauses the job."""
    if debugger.session.running:
        await debugger.session.wait()
        await debugger.show_stop()
    else:
        await _go(debugger, "continue")


@command("unt", "until", argument="[line]", resumes=True)
async def run_until(debugger: Debugger, argument: str) -> None:
    """Run to a later line of the selected frame's function, such as out of a loop, or until it returns."""
    frame = debugger.session.frame
    if argument and not argument.isdigit():
        raise UsageError(f"invalid line: '{argument}'")
    if argument:
        lines = range(int(argument), int(argument) + 1)
    else:
        source = await debugger.source.file(frame.path)
        last = function_lines(source, frame.line)[1] if frame.function != "<module>" else len(source)
        lines = range(frame.line + 1, last + 1)
    if await debugger.session.leave_called():
        await debugger.breakpoints.run_until(frame.path, lines)
    await debugger.show_stop()


@command("j", "jump", argument="line", resumes=True)
async def jump(debugger: Debugger, argument: str) -> None:
    """Choose which line of this function runs next; the lines in between are not run."""
    frame = debugger.session.frame
    if not argument.isdigit():
        raise UsageError(f"invalid line: '{argument}'")
    if debugger.session.level:
        raise UsageError("jumping works only in the innermost frame")
    source = {"path": frame.path}
    found = (await debugger.session.request("gotoTargets", source=source, line=int(argument))).get("targets", [])
    if not found:
        raise UsageError(f"cannot jump to line {argument}")
    with readable():
        target = found[0]["id"]
    await debugger.session.resume("goto", targetId=target)
    await debugger.show_stop()


async def _leave(debugger: Debugger, request: str) -> None:
    """Resume as `_go`, once the selected frame is the innermost one; if the job stops before that, show it there."""
    if await debugger.session.leave_called():
        await debugger.session.resume(request)
    await debugger.show_stop()


async def _go(debugger: Debugger, request: str) -> None:
    """Resume the job with a DAP request, and show where it stops."""
    await debugger.session.resume(request)
    await debugger.show_stop()


@command("b", "break", argument="[[file:]line or function[, condition]]")
async def set_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint; without an argument, list all breakpoints."""
    await _set(debugger, argument, temporary=False)


@command("tbreak", argument="[[file:]line or function[, condition]]")
async def set_temporary_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint that is removed at the first stop at its line."""
    await _set(debugger, argument, temporary=True)


async def _set(debugger: Debugger, argument: str, *, temporary: bool) -> None:
    if argument:
        await debugger.set_breakpoint(argument, temporary=temporary)
    else:
        debugger.screen.show("\n".join(map(str, debugger.breakpoints.all)) or "no breakpoints")


@command("cl", "clear", argument="[number... or file:line]")
async def clear_breakpoints(debugger: Debugger, argument: str) -> None:
    """Remove breakpoints; without an argument, remove all breakpoints."""
    known = debugger.breakpoints.all
    words = argument.split()
    if not argument:
        numbers = {one.number for one in known}
    elif all(word.isdigit() for word in words):
        numbers = set(map(int, words))
    else:
        path, line, _ = await debugger.find(argument)
        numbers = {one.number for one in known if (one.path, one.line) == (path, line)}
    removed = await debugger.breakpoints.clear(numbers)
    debugger.screen.show("\n".join(f"Removed: {one}" for one in removed) or "no such breakpoint")


@command("q", "quit", "exit", "detach")
async def quit_debugger(debugger: Debugger, _argument: str) -> None:
    """Detach and exit; the job continues."""
    debugger.quit_requested = True


# The commands that show frames, source, values and threads; they do not resume the job.

LINES = 11
"""Number of lines that `list` shows, as in pdb."""
MAX_PRETTY = 30_000
"""Maximum number of characters that `pp` shows; debugpy would remove the middle of a longer text."""


@command("w", "where", "bt")
async def show_stack(debugger: Debugger, _argument: str) -> None:
    """Show the stack, innermost frame last; > marks the selected frame."""
    session = debugger.session
    frames, level = session.frames, session.level
    if not frames:  # the job is running: show its current stack; no frame is selected
        frames, level = await session.main_stack(), -1
    lines = await debugger.describe(frames, level)
    debugger.screen.show("\n".join(reversed(lines)))


@command("u", "up", argument="[count]")
async def go_up(debugger: Debugger, argument: str) -> None:
    """Select the caller of the selected frame."""
    await _select_frame(debugger, _count(argument))


@command("d", "down", argument="[count]")
async def go_down(debugger: Debugger, argument: str) -> None:
    """Select the frame that the selected frame called."""
    await _select_frame(debugger, -_count(argument))


async def _select_frame(debugger: Debugger, levels: int) -> None:
    """Select the frame `levels` above the selected one, or below it if negative."""
    session = debugger.session
    session.require_stopped()
    last = len(session.frames) - 1
    if session.level == (last if levels > 0 else 0):
        raise UsageError("this is the outermost frame" if levels > 0 else "this is the innermost frame")
    session.level = min(max(session.level + levels, 0), last)
    debugger.listed = 0
    await debugger.show_place()


def _count(argument: str) -> int:
    if argument and not argument.isdigit():
        raise UsageError(f"invalid number: '{argument}'")
    return int(argument or 1)


@command("l", "list", argument="[first[, last]]")
async def show_source(debugger: Debugger, argument: str) -> None:
    """Show the source around the current line, then the lines that follow; 'l .' starts over."""
    frame = debugger.session.frame
    lines = await debugger.source.file(frame.path)
    parts = [part.strip() for part in argument.split(",")] if argument not in {"", "."} else []
    if not all(part.isdigit() for part in parts) or len(parts) > 2:
        raise UsageError("invalid line numbers", hint="use l 20 or l 20, 40")
    if parts:
        first = int(parts[0])
        last = int(parts[1]) if len(parts) > 1 else first + LINES - 1
        last = first + last if last < first else last  # a count, as in pdb
    else:
        first = debugger.listed + 1 if debugger.listed and not argument else max(frame.line - LINES // 2, 1)
        last = first + LINES - 1
    shown = numbered(lines, first, last, current=frame.line)
    debugger.listed = last
    debugger.screen.show("\n".join(shown) or ("[end of file]" if lines else "*** source not available"))


@command("ll", "longlist")
async def show_function(debugger: Debugger, _argument: str) -> None:
    """Show the source of the current function."""
    frame = debugger.session.frame
    lines = await debugger.source.file(frame.path)
    first, last = (1, len(lines)) if frame.function == "<module>" else function_lines(lines, frame.line)
    shown = numbered(lines, first, last, current=frame.line)
    debugger.screen.show("\n".join(shown) or "*** source not available")


@command("p", argument="expression")
async def show_value(debugger: Debugger, argument: str) -> None:
    """Show the value of an expression."""
    debugger.screen.show(await debugger.session.evaluate(_expression(argument)))


@command("pp", argument="expression")
async def show_pretty(debugger: Debugger, argument: str) -> None:
    """Pretty-print the value of an expression."""
    text = f"__import__('pprint').pformat({_expression(argument)})[:{MAX_PRETTY}]"
    await debugger.session.evaluate(text)  # raises if the expression is invalid; `value` returns the error as a value
    debugger.screen.show(str(await debugger.session.value(text)))


@command("whatis", argument="expression")
async def show_type(debugger: Debugger, argument: str) -> None:
    """Show the type of an expression."""
    debugger.screen.show(await debugger.session.evaluate(f"type({_expression(argument)})"))


def _expression(argument: str) -> str:
    if not argument:
        raise UsageError("an expression is missing")
    return argument


@command("a", "args")
async def show_arguments(debugger: Debugger, _argument: str) -> None:
    """Show the arguments of the current function."""
    frame = debugger.session.frame
    names = argument_names(await debugger.source.file(frame.path), frame.line)
    if names is None or frame.function == "<module>":
        raise UsageError("this frame is not in a function", hint="enter 'locals' to show its variables")
    variables = await debugger.session.variables()
    _show_variables(debugger, {name: variables[name] for name in names if name in variables})


@command("locals")
async def show_variables(debugger: Debugger, _argument: str) -> None:
    """Show all local variables."""
    _show_variables(debugger, await debugger.session.variables())


def _show_variables(debugger: Debugger, variables: dict[str, str]) -> None:
    lines = [escape_controls(name) + " = " + value.replace("\n", "\n    ") for name, value in variables.items()]
    debugger.screen.show("\n".join(lines) or "none")


@command("threads")
async def show_threads(debugger: Debugger, _argument: str) -> None:
    """Show all threads and their innermost frames; > marks the selected thread."""
    session = debugger.session
    threads = await session.threads()
    stacks = await asyncio.gather(*(session.stack(number) for number in threads))
    lines = [
        f"{'>' if number == session.thread and not session.running else ' '} {number} {escape_controls(name)}"
        + (f"  {stack[0].place}" if stack else "")
        for (number, name), stack in zip(threads.items(), stacks, strict=True)
    ]
    debugger.screen.show("\n".join(lines))


@command("thread", argument="number")
async def select_thread(debugger: Debugger, argument: str) -> None:
    """Select another thread; later steps run that thread."""
    session = debugger.session
    session.require_stopped()
    if not argument.isdigit() or int(argument) not in await session.threads():
        raise UsageError(f"no such thread: '{argument}'", hint="enter 'threads' to list all threads")
    await session.select_thread(int(argument))
    debugger.listed = 0
    await debugger.show_place()


@command("h", "help", argument="[command]")
async def show_help(debugger: Debugger, argument: str) -> None:
    """Show all commands, or the help for one command."""
    if argument:
        if argument not in COMMANDS:
            raise UsageError(f"no such command: '{argument}'")
        debugger.screen.show(f"{COMMANDS[argument].usage}\n    {COMMANDS[argument].help}")
        return
    table = list(dict.fromkeys(COMMANDS.values()))
    width = max(len(one.usage) for one in table)
    lines = [f"{one.usage:<{width}}  {one.help}" for one in table]
    lines.append("Any other line runs as Python code in the selected frame; a leading ! makes any line run as code.")
    lines.append(
        "An empty line repeats the last step or listing. Ctrl-C pauses the job; Ctrl-D detaches and leaves it running."
    )
    debugger.screen.show("\n".join(lines))
