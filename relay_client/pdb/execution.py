"""The commands that let the job move, and say where it stops."""

from __future__ import annotations

from relay_client.pdb.command_table import command
from relay_client.pdb.debugger import Debugger
from relay_client.pdb.source import function_lines
from relay_core.errors import UsageError

__all__ = ["leave"]


@command("n", "next")
async def step_over(debugger: Debugger, _argument: str) -> None:
    """Run to the next line of this function."""
    await _go(debugger, "next")


@command("s", "step")
async def step_in(debugger: Debugger, _argument: str) -> None:
    """Run to the next line, into what is called."""
    await _go(debugger, "stepIn")


@command("r", "return")
async def step_out(debugger: Debugger, _argument: str) -> None:
    """Run until this function has returned."""
    await _go(debugger, "stepOut")


@command("c", "cont", "continue")
async def run_on(debugger: Debugger, _argument: str) -> None:
    """Run on; Ctrl-C pauses."""
    if debugger.session.running:
        await debugger.session.wait()
        await debugger.arrive()
    else:
        await _go(debugger, "continue")


@command("unt", "until", argument="[line]")
async def run_until(debugger: Debugger, argument: str) -> None:
    """Run to a later line of this function, for example out of a loop, or until it returns."""
    frame = debugger.session.frame
    if argument and not argument.isdigit():
        raise UsageError(f"'{argument}' is no line")
    if argument:
        lines = range(int(argument), int(argument) + 1)
    else:
        source = await debugger.source.file(frame.path)
        last = function_lines(source, frame.line)[1] if frame.function != "<module>" else len(source)
        lines = range(frame.line + 1, last + 1)
    await debugger.breakpoints.run_until(frame.path, lines)
    await debugger.arrive()


@command("j", "jump", argument="line")
async def jump(debugger: Debugger, argument: str) -> None:
    """Go on from another line of this function, without running what lies between."""
    frame = debugger.session.frame
    if not argument.isdigit():
        raise UsageError(f"'{argument}' is no line")
    if debugger.session.level:
        raise UsageError("only the innermost frame can jump")
    source = {"path": frame.path}
    found = (await debugger.session.request("gotoTargets", source=source, line=int(argument))).get("targets", [])
    if not found:
        raise UsageError(f"line {argument} cannot be jumped to")
    await debugger.session.resume("goto", targetId=found[0]["id"])
    await debugger.arrive()


async def _go(debugger: Debugger, request: str) -> None:
    await debugger.session.resume(request)
    await debugger.arrive()


@command("b", "break", argument="[[file:]line or function[, condition]]")
async def set_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint, or list all."""
    await _set(debugger, argument, temporary=False)


@command("tbreak", argument="[[file:]line or function[, condition]]")
async def set_temporary_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint that is gone once it is hit."""
    await _set(debugger, argument, temporary=True)


async def _set(debugger: Debugger, argument: str, *, temporary: bool) -> None:
    if argument:
        path, line, condition = await debugger.find(argument)
        debugger.screen.show(str(await debugger.breakpoints.place(path, line, condition, temporary=temporary)))
    else:
        debugger.screen.show("\n".join(map(str, debugger.breakpoints.all)) or "no breakpoints")


@command("cl", "clear", argument="[number... or file:line]")
async def clear_breakpoints(debugger: Debugger, argument: str) -> None:
    """Remove breakpoints, by default all."""
    known = debugger.breakpoints.all
    words = argument.split()
    if not argument:
        numbers = {one.number for one in known}
    elif all(word.isdigit() for word in words):
        numbers = set(map(int, words))
    else:
        path, line, _ = await debugger.find(argument)
        numbers = {one.number for one in known if (one.path, one.line) == (path, line)}
    gone = await debugger.breakpoints.clear(numbers)
    debugger.screen.show("\n".join(f"Removed: {one}" for one in gone) or "no such breakpoint")


@command("q", "quit", "exit", "detach")
async def leave(debugger: Debugger, _argument: str) -> None:
    """Leave; the job runs on."""
    debugger.left = True
