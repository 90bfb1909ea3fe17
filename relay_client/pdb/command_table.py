"""The table of commands, and how a line that was typed finds its own.

A line whose first word is no command is Python, evaluated in the frame that is looked at; so is `n = 5`, and whatever
stands behind a `!`.
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
    """One command; its help is the first line of the function's docstring."""

    names: tuple[str, ...]
    argument: str
    run: Action

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"{', '.join(self.names)} {self.argument}".rstrip()

    @property
    def help(self) -> str:
        """What it does."""
        return (self.run.__doc__ or "").splitlines()[0]


COMMANDS: dict[str, Command] = {}
"""By each name."""

_ASSIGNMENT = re.compile(r"(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)|:(?!\s*\d)")
"""What follows a name that gets a value."""


def command(*names: str, argument: str = "") -> Callable[[Action], Action]:
    """Put a function into the table; it takes what stands behind the command's name."""

    def register(run: Action) -> Action:
        COMMANDS.update(dict.fromkeys(names, Command(names, argument, run)))
        return run

    return register


def split(line: str) -> tuple[str, str]:
    """Return the command and the argument of a line; for Python, "" and the whole."""
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
    """Do what a line says; what goes wrong is shown."""
    name, argument = split(line)
    try:
        if name:
            await COMMANDS[name].run(debugger, argument)
        elif argument:
            await _run_python(debugger, argument)
    except RelayDebugError as error:
        debugger.screen.show(f"*** {_complaint(error)}")


async def _run_python(debugger: Debugger, code: str) -> None:
    result = await debugger.session.evaluate(code, "repl")
    if result:
        debugger.screen.show(result)


def _complaint(error: RelayDebugError) -> str:
    """Return the line that matters: of an exception in the job the last one."""
    reason = error.reason.strip() if isinstance(error, RequestFailed) else ""
    return reason.splitlines()[-1] if reason else str(error)
