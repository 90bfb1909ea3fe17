"""`relay-agent run -- COMMAND...`: the command, made debuggable without a change of its code.

This process becomes the command (exec), so exit status, signals, stdin and stdout are the command's own. What changes
is its environment: the settings (`relay_agent.settings.environment`), and a directory in front of PYTHONPATH with the
`sitecustomize` by which every Python process of the job looks at them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from relay_agent import inject
from relay_agent.collective_timeouts import timeout_variables
from relay_agent.python_path import in_front
from relay_agent.settings.environment import (
    ACCESS_FIELDS,
    HC,
    MODE,
    REGISTERED,
    access_variable,
    from_environment,
)
from relay_agent.settings.model import DEFAULT_HOLD, DEFAULT_PORT, DEFAULT_TIMEOUTS, DEFAULT_WAIT, DebugSettings
from relay_core.errors import ConfigurationError, RelayDebugError, UsageError
from relay_core.program.console import print_error
from relay_core.program.options import access_settings, add_access_options

__all__ = ["add_run_options", "job_environment", "run"]

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of a shell for a command that it cannot start (POSIX, Shell Command Language, 2.8.2)."""


class _Option(NamedTuple):
    flag: str
    metavar: str | None
    """None for a flag without a value."""
    text: str
    repeatable: bool = False
    bare: str | None = None
    """What the option means without a value; None if it needs one."""

    @property
    def name(self) -> str:
        """Its name in the parser's result."""
        return self.flag[2:].replace("-", "_")


_OPTIONS = {
    "RELAY_DEBUG_PORT": _Option(
        "--port", "PORT", f"logical port of rank 0 (default {DEFAULT_PORT}); rank n has n more"
    ),
    "RELAY_DEBUG_RANKS": _Option("--debug-ranks", "LIST", "ranks that wait: 0,3-5, all, master or none (default 0)"),
    "RELAY_DEBUG_WAIT": _Option("--wait", "SECONDS", f"how long they wait (default {DEFAULT_WAIT:g}; 0: not at all)"),
    "RELAY_DEBUG_ON_TIMEOUT": _Option("--on-timeout", "POLICY", "when nobody came: continue (default) or abort"),
    "RELAY_DEBUG_ON_CRASH": _Option("--debug-on-crash", None, "hold a process at its first uncaught exception"),
    "RELAY_DEBUG_HOLD": _Option("--hold", "TIME", f"for how long, e.g. 90 or 2h (default {DEFAULT_HOLD / 60:g}m)"),
    "RELAY_DEBUG_TIMEOUTS": _Option(
        "--debug-timeouts",
        "SECONDS",
        "raise the watchdogs of torch.distributed, NCCL, gloo, DeepSpeed and Horovod (bare: to a day)",
        bare=f"{DEFAULT_TIMEOUTS:g}",
    ),
    "RELAY_DEBUG_FORWARD": _Option(
        "--forward", "PORT", "a further port of this machine that clients may reach; repeatable", repeatable=True
    ),
    "RELAY_DEBUG_FOLLOW_CHILDREN": _Option("--follow-children", None, "offer child processes to the debugger too"),
}
"""By variable."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Define what `run` reads."""
    for option in _OPTIONS.values():
        if option.metavar is None:
            parser.add_argument(option.flag, action="store_const", const="1", help=option.text)
        elif option.repeatable:
            parser.add_argument(option.flag, action="append", metavar=option.metavar, help=option.text)
        elif option.bare is not None:
            parser.add_argument(option.flag, nargs="?", const=option.bare, metavar=option.metavar, help=option.text)
        else:
            parser.add_argument(option.flag, metavar=option.metavar, help=option.text)
    add_access_options(parser)
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run, e.g. torchrun ..."
    )


def run(arguments: argparse.Namespace) -> NoReturn:
    """Become the command; its exit status is this process's.

    Raises:
        UsageError: an option or a variable cannot be understood, or no command is given.
        SystemExit: the command cannot be started (status 126 or 127).
    """
    program: list[str] = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not program:
        raise UsageError("no command is given", hint="for example: relay-agent run --hc myhc -- python train.py")
    environ = job_environment(arguments, os.environ)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so through exec
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environ)  # noqa: S606 - what the user typed, word for word
    except OSError as error:
        failure, status = _explain(error, program, environ)
    print_error("relay-agent", failure)
    sys.exit(status)


def job_environment(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command; with RELAY_DEBUG=off it is the given one.

    Raises:
        UsageError: an option or a variable cannot be understood.
    """
    said = {variable: _text(getattr(arguments, option.name)) for variable, option in _OPTIONS.items()}
    said |= _access(arguments)
    job = {**environ, **{variable: text for variable, text in said.items() if text is not None}}
    job[MODE] = environ.get(MODE) or "wait"
    if job[MODE] == "on-demand" and said["RELAY_DEBUG_RANKS"] is not None:
        job[MODE] = "wait"
    settings = from_environment(job, options={variable: option.flag for variable, option in _OPTIONS.items()})
    if settings is None:
        return dict(environ)
    job.pop(REGISTERED, None)
    job[HC] = _hybrid_connection(settings, arguments.connection_string, environ)
    if settings.timeouts is not None:
        job |= timeout_variables(settings.timeouts, job)
    job["PYTHONPATH"] = in_front(Path(inject.__file__).parent, environ.get("PYTHONPATH"))
    return job


def _text(value: str | list[str] | None) -> str | None:
    return ",".join(value) if isinstance(value, list) else value


def _access(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return what the command line says about credentials; the job may change its directory, so paths are absolute."""
    settings = access_settings(arguments)
    found: dict[str, str | None] = {"RELAY_CONNECTION_STRING": settings.connection_string, HC: settings.hc}
    for field in ACCESS_FIELDS:
        value = getattr(arguments, field)
        found[access_variable(field)] = str(Path(value).absolute()) if value and field.endswith("_file") else value
    return found


def _hybrid_connection(settings: DebugSettings, connection_string: str | None, environ: Mapping[str, str]) -> str:
    """Return the name, which may be in the connection string; the processes of the job do not read that."""
    from relay_core.auth import find_connection_string

    name: str | None = settings.access.get("hc")
    if name is None and not settings.access.keys() & {"namespace", "connection_string_secret"}:
        file = settings.access.get("connection_string_file")
        with contextlib.suppress(ConfigurationError):  # the agent will say what is wrong with it
            name = find_connection_string(text=connection_string, file=file, environ=environ).entity_path
    if name is None:
        raise UsageError("the hybrid connection is not named", hint=f"add --hc NAME, or set {HC}")
    return name


def _explain(error: OSError, program: Sequence[str], environ: Mapping[str, str]) -> tuple[RelayDebugError, int]:
    """Return what to say when the command cannot be started, and the status that a shell would end with."""
    name = program[0]
    found = shutil.which(name, mode=os.F_OK, path=environ.get("PATH"))
    hint = f"say: relay-agent run -- python {name}" if name.endswith(".py") else ""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        if found is not None:
            return ConfigurationError(f"the interpreter that the first line of '{found}' names is missing"), NOT_FOUND
        return ConfigurationError(
            f"there is no command '{name}'", hint=hint or "look at its name and at PATH"
        ), NOT_FOUND
    if isinstance(error, PermissionError):
        hint = hint or f"is it a program? chmod +x {name} makes it one"
    return ConfigurationError(f"'{name}' cannot be started: {error.strerror}", hint=hint), NOT_EXECUTABLE
