"""The commands that show frames, source, values and threads; they do not resume the job."""

from __future__ import annotations

import asyncio

from relay_client.pdb.command_table import COMMANDS, command
from relay_client.pdb.debugger import Debugger
from relay_client.pdb.source import argument_names, function_lines, numbered
from relay_core.errors import UsageError

__all__ = ["show_stack"]

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
    debugger.screen.show("\n".join(f"{name} = {value}" for name, value in variables.items()) or "none")


@command("threads")
async def show_threads(debugger: Debugger, _argument: str) -> None:
    """Show all threads and their innermost frames; > marks the selected thread."""
    session = debugger.session
    threads = await session.threads()
    stacks = await asyncio.gather(*(session.stack(number) for number in threads))
    lines = [
        f"{'>' if number == session.thread and not session.running else ' '} {number} {name}"
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
