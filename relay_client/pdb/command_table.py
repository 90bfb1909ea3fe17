"""The table of commands, with the parser and the execution of command lines.

A line whose first word is not a command is executed as Python code in the selected frame. The same applies to an
assignment to the name of a command, such as `n = 5`, and to any text after a `!`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay_client.dap.client import RequestFailed
from relay_client.pdb.debugger import Debugger
from relay_core.errors import RelayDebugError

__all__ = ["COMMANDS", "Command", "command", "execute", "split"]

Action = Callable[[Debugger, str], Awaitable[None]]


@dataclass(frozen=True)
class Command:
    """One command; its help text is the first line of the function's docstring."""

    names: tuple[str, ...]
    argument: str
    run: Action

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

_ASSIGNMENT = re.compile(r"(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)|:(?!\s*\d)")
"""Matches the start of the text after the target of an assignment or a type annotation."""


def command(*names: str, argument: str = "") -> Callable[[Action], Action]:
    """Return a decorator that adds a function to the table.

    Args:
        names: The names of the command; the first is the shortest.
        argument: Placeholder for the argument in the help text.
    """

    def register(run: Action) -> Action:
        COMMANDS.update(dict.fromkeys(names, Command(names, argument, run)))
        return run

    return register


def split(line: str) -> tuple[str, str]:
    """Return the command and the argument of a line; for Python code, "" and the code."""
    line = line.strip()
    if line.startswith("!"):
        return "", line[1:].strip()
    if line.startswith("?"):
        return "help", line[1:].strip()
    word, _, argument = line.partition(" ")
    if match := re.match(r"(pp?)(\(.*)", line):
        word, argument = match[1], match[2]
    if word not in COMMANDS or _ASSIGNMENT.match(argument.strip()):
        return "", line
    return word, argument.strip()


async def execute(debugger: Debugger, line: str) -> None:
    """Execute a line; show the error if it fails."""
    name, argument = split(line)
    try:
        if name:
            await COMMANDS[name].run(debugger, argument)
        elif argument:
            await _run_python(debugger, argument)
    except RelayDebugError as error:
        debugger.screen.show(f"*** {_error_line(error)}")


async def _run_python(debugger: Debugger, code: str) -> None:
    result = await debugger.session.evaluate(code, "repl")
    if result:
        debugger.screen.show(result)


def _error_line(error: RelayDebugError) -> str:
    """Return the error as one line; for an exception in the job, the last line of its traceback."""
    reason = error.reason.strip() if isinstance(error, RequestFailed) else ""
    return reason.splitlines()[-1] if reason else str(error)
