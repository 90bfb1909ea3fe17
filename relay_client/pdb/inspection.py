"""The commands that look around and leave the job where it is."""

from __future__ import annotations

import asyncio

from relay_client.pdb.command_table import COMMANDS, command
from relay_client.pdb.debugger import Debugger
from relay_client.pdb.source import argument_names, function_lines, numbered
from relay_core.errors import UsageError

__all__ = ["show_stack"]

LINES = 11
"""Lines that `list` shows, as pdb's."""
MAX_PRETTY = 30_000
"""Characters of `pp`; debugpy cuts longer texts in their middle."""


@command("w", "where", "bt")
async def show_stack(debugger: Debugger, _argument: str) -> None:
    """Show the stack, the innermost frame last; > marks the one that is looked at."""
    session = debugger.session
    frames, level = session.frames, session.level
    if not frames:  # it runs, and can still be looked at
        frames, level = await session.main_stack(), -1
    lines = await debugger.describe(frames, level)
    debugger.screen.show("\n".join(reversed(lines)))


@command("u", "up", argument="[count]")
async def go_up(debugger: Debugger, argument: str) -> None:
    """Look at the frame that has called this one."""
    await _move(debugger, _count(argument))


@command("d", "down", argument="[count]")
async def go_down(debugger: Debugger, argument: str) -> None:
    """Look at the frame that this one has called."""
    await _move(debugger, -_count(argument))


async def _move(debugger: Debugger, levels: int) -> None:
    session = debugger.session
    session.must_stand()
    last = len(session.frames) - 1
    if session.level == (last if levels > 0 else 0):
        raise UsageError("this is the outermost frame" if levels > 0 else "this is the innermost frame")
    session.level = min(max(session.level + levels, 0), last)
    debugger.listed = 0
    await debugger.show_place()


def _count(argument: str) -> int:
    if argument and not argument.isdigit():
        raise UsageError(f"'{argument}' is no number")
    return int(argument or 1)


@command("l", "list", argument="[first[, last]]")
async def show_source(debugger: Debugger, argument: str) -> None:
    """Show source around the line, then further on; 'l .' starts again there."""
    frame = debugger.session.frame
    lines = await debugger.source.file(frame.path)
    parts = [part.strip() for part in argument.split(",")] if argument not in {"", "."} else []
    if not all(part.isdigit() for part in parts) or len(parts) > 2:
        raise UsageError("lines are numbers", hint="l 20, or l 20, 40")
    if parts:
        first = int(parts[0])
        last = int(parts[1]) if len(parts) > 1 else first + LINES - 1
        last = first + last if last < first else last  # a count, as in pdb
    else:
        first = debugger.listed + 1 if debugger.listed and not argument else max(frame.line - LINES // 2, 1)
        last = first + LINES - 1
    shown = numbered(lines, first, last, current=frame.line)
    debugger.listed = last
    debugger.screen.show("\n".join(shown) or ("[end of file]" if lines else "*** nobody has the source"))


@command("ll", "longlist")
async def show_function(debugger: Debugger, _argument: str) -> None:
    """Show the source of the function."""
    frame = debugger.session.frame
    lines = await debugger.source.file(frame.path)
    first, last = (1, len(lines)) if frame.function == "<module>" else function_lines(lines, frame.line)
    shown = numbered(lines, first, last, current=frame.line)
    debugger.screen.show("\n".join(shown) or "*** nobody has the source")


@command("p", argument="expression")
async def show_value(debugger: Debugger, argument: str) -> None:
    """Show the value of an expression."""
    debugger.screen.show(await debugger.session.evaluate(_expression(argument)))


@command("pp", argument="expression")
async def show_pretty(debugger: Debugger, argument: str) -> None:
    """Show the value of an expression, over several lines."""
    text = f"__import__('pprint').pformat({_expression(argument)})[:{MAX_PRETTY}]"
    await debugger.session.evaluate(text)  # an error is an error here, and a value to `value`
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
    """Show the arguments of the function."""
    frame = debugger.session.frame
    names = argument_names(await debugger.source.file(frame.path), frame.line)
    if names is None or frame.function == "<module>":
        raise UsageError("this is no function; 'locals' shows its variables")
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
    """Show all threads and where they are; > marks the one that is looked at."""
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
async def choose_thread(debugger: Debugger, argument: str) -> None:
    """Look at another thread; stepping then moves that one."""
    session = debugger.session
    session.must_stand()
    if not argument.isdigit() or int(argument) not in await session.threads():
        raise UsageError(f"there is no thread '{argument}'", hint="'threads' shows all")
    await session.look_at(int(argument))
    debugger.listed = 0
    await debugger.show_place()


@command("h", "help", argument="[command]")
async def show_help(debugger: Debugger, argument: str) -> None:
    """Show this."""
    if argument:
        if argument not in COMMANDS:
            raise UsageError(f"there is no command '{argument}'")
        debugger.screen.show(f"{COMMANDS[argument].usage}\n    {COMMANDS[argument].help}")
        return
    table = list(dict.fromkeys(COMMANDS.values()))
    width = max(len(one.usage) for one in table)
    lines = [f"{one.usage:<{width}}  {one.help}" for one in table]
    lines.append("Anything else is Python, run in the frame that is looked at; ! in front makes sure of that.")
    lines.append("An empty line repeats the last move or listing. Ctrl-C pauses the job; Ctrl-D leaves it running.")
    debugger.screen.show("\n".join(lines))
