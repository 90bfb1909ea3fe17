"""The commands that run the job, and those that set breakpoints."""

from __future__ import annotations

from relay_client.pdb.command_table import command
from relay_client.pdb.debugger import Debugger
from relay_client.pdb.source import function_lines
from relay_core.errors import UsageError

__all__ = ["quit_debugger"]


@command("n", "next")
async def step_over(debugger: Debugger, _argument: str) -> None:
    """Run to the next line of this function."""
    await _go(debugger, "next")


@command("s", "step")
async def step_in(debugger: Debugger, _argument: str) -> None:
    """Run to the next line, stepping into called functions."""
    await _go(debugger, "stepIn")


@command("r", "return")
async def step_out(debugger: Debugger, _argument: str) -> None:
    """Run until this function returns."""
    await _go(debugger, "stepOut")


@command("c", "cont", "continue")
async def continue_running(debugger: Debugger, _argument: str) -> None:
    """Continue; Ctrl-C pauses the job."""
    if debugger.session.running:
        await debugger.session.wait()
        await debugger.show_stop()
    else:
        await _go(debugger, "continue")


@command("unt", "until", argument="[line]")
async def run_until(debugger: Debugger, argument: str) -> None:
    """Run to a later line of this function, for example out of a loop, or until the function returns."""
    frame = debugger.session.frame
    if argument and not argument.isdigit():
        raise UsageError(f"invalid line: '{argument}'")
    if argument:
        lines = range(int(argument), int(argument) + 1)
    else:
        source = await debugger.source.file(frame.path)
        last = function_lines(source, frame.line)[1] if frame.function != "<module>" else len(source)
        lines = range(frame.line + 1, last + 1)
    await debugger.breakpoints.run_until(frame.path, lines)
    await debugger.show_stop()


@command("j", "jump", argument="line")
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
    await debugger.session.resume("goto", targetId=found[0]["id"])
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
    """Set a breakpoint that is removed when it is hit."""
    await _set(debugger, argument, temporary=True)


async def _set(debugger: Debugger, argument: str, *, temporary: bool) -> None:
    if argument:
        path, line, condition = await debugger.find(argument)
        debugger.screen.show(str(await debugger.breakpoints.set(path, line, condition, temporary=temporary)))
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
