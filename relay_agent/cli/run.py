"""`relay-agent run -- COMMAND...`: runs a command that can be debugged without changes to its code.

This process replaces itself with the command (exec), so exit status, signals, stdin and stdout are those of the
command. If orphans would become its children (`init_process`), the command is a child instead. Only the environment is
changed: the settings are added (`relay_agent.settings.environment`), and PYTHONPATH starts with a directory whose
`sitecustomize` reads them in every Python process of the job.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from relay_agent import inject
from relay_agent.cli.commands import PROGRAM, Commands
from relay_agent.cli.init_process import remain_init_process
from relay_agent.inject._relay_debug_programs import is_off, is_python
from relay_agent.job.collective_timeouts import timeout_variables
from relay_agent.job.paths import in_front
from relay_agent.job.stderr import write_line
from relay_agent.settings.environment import (
    ACCESS_VARIABLES,
    HC,
    MODE,
    ON_DEMAND,
    REGISTERED,
    WAIT,
    from_environment,
    is_local,
)
from relay_agent.settings.model import DebugSettings
from relay_agent.settings.table import SETTINGS, Setting
from relay_agent.startup.unregistered import command_obstacle, watch_this_process
from relay_core.access_settings import ACCESS_OPTIONS, CONNECTION_STRING_SECRET_VARIABLE, CONNECTION_STRING_VARIABLE
from relay_core.errors import ConfigurationError, RelayDebugError, UsageError
from relay_core.exit_codes import NOT_EXECUTABLE, NOT_FOUND
from relay_core.program.console import print_error
from relay_core.program.options import access_settings, add_access_options
from relay_core.value_parsers import read_flag


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="run a command and make its Python processes debuggable, without code changes",
        usage="%(prog)s [options] -- COMMAND ...",
        description="Replaces itself with the command (exec; as PID 1, starts it). Each Python program in it, such as "
        "a rank of torchrun, registers with this node's agent and can be debugged on demand, but not code from -c or "
        "stdin.",
    )
    for setting in SETTINGS:
        _add_option(parser, setting)
    add_access_options(parser)
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        action=_ProgramAction,
        metavar="-- COMMAND",
        help="the command to run, such as torchrun ...",
    )
    parser.set_defaults(command=run, typed={}, last_flag="")


def _add_option(parser: argparse.ArgumentParser, setting: Setting) -> None:
    """Add the option for a setting.

    For argparse, flags have no value, because it would take the command for one; `_ProgramAction` reads the value.
    """
    names = [setting.option, *([setting.alias] if setting.alias else [])]
    shown = f"{setting.help} (default: {setting.default})" if setting.default and not setting.is_flag else setting.help
    options: dict[str, Any] = {"nargs": 0} if setting.is_flag else {"metavar": setting.metavar}
    if setting.bare and not setting.is_flag:
        options["nargs"] = "?"
    options |= {"dest": setting.destination, "const": setting.bare, "help": shown, "setting": setting}
    parser.add_argument(*names, action=_StoreAction, **options)


class _StoreAction(argparse.Action):
    """Stores the text of a setting, and the name of the option as it was typed, for error messages."""

    def __init__(self, *arguments: Any, setting: Setting, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._setting = setting

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        text = self.const if self._setting.is_flag else values
        earlier = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{earlier},{text}" if earlier and self._setting.is_list else text)
        namespace.typed = {**namespace.typed, self._setting.field: option_string}
        namespace.last_flag = self.dest if self._setting.is_flag else ""


class _ProgramAction(argparse.Action):
    """Stores the command; if it begins with the value of a flag, stores the value, and parses the rest."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: object = None
    ) -> None:
        flag, namespace.last_flag = namespace.last_flag, ""
        if flag and values and read_flag(values[0]) is not None:
            setattr(namespace, flag, values[0])
            parser.parse_args(values[1:], namespace)
        else:
            namespace.program = values


def run(arguments: argparse.Namespace) -> NoReturn:
    """Replace this process with the command.

    Raises:
        UsageError: an option or a variable is invalid, or the command is missing.
        SystemExit: the command cannot be started (status 126 or 127).
    """
    program = _program(arguments.program)
    environ = job_environment(arguments, os.environ)
    if not is_off(environ.get(MODE, "")) and _check(program):
        remain_init_process()
        watch_this_process()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these signals, and exec would preserve that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environ)  # noqa: S606 - exactly the command that the user typed
    except OSError as error:
        failure, status = _explain(error, program, environ)
    print_error(PROGRAM, failure)
    sys.exit(status)


def _check(program: Sequence[str]) -> bool:
    """Return False, and log the reason, if the command is a Python that reads no file, or ignores its environment."""
    if reason := command_obstacle([*program]) if is_python(program[0]) else "":
        write_line(reason)
    return not reason


def _program(rest: list[str]) -> list[str]:
    """Return the command, which may follow `--`."""
    program = rest[1:] if rest[:1] == ["--"] else rest
    if not program:
        raise UsageError("no command given", hint="add a command: relay-agent run --hc myhc -- python train.py")
    return program


def job_environment(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command; with RELAY_DEBUG=off it is `environ` unchanged.

    Raises:
        UsageError: an option or a variable is invalid.
    """
    texts = {setting.variable: getattr(arguments, setting.destination) for setting in SETTINGS}
    texts |= _access(arguments)
    job = {**environ, **{variable: text for variable, text in texts.items() if text is not None}}
    job[MODE] = environ.get(MODE) or WAIT
    if job[MODE] == ON_DEMAND and arguments.debug_ranks is not None:
        job[MODE] = WAIT
    settings = from_environment(job, name_of=lambda setting: arguments.typed.get(setting.field, setting.variable))
    if settings is None:
        return dict(environ)
    job.pop(REGISTERED, None)
    if name := _hybrid_connection(settings, arguments.connection_string, job):
        job[HC] = name
    if settings.timeouts:
        job |= timeout_variables(settings.timeouts, job)
    job["PYTHONPATH"] = in_front(Path(inject.__file__).parent, environ.get("PYTHONPATH"))
    return job


def _access(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return the credential settings of the command line.

    Paths become absolute, because the job may change its directory.
    """
    given = access_settings(arguments)._asdict()
    found = {CONNECTION_STRING_VARIABLE: given["connection_string"]}
    for option in ACCESS_OPTIONS:
        text = given[option.field]
        if variable := ACCESS_VARIABLES.get(option.field):
            found[variable] = str(Path(text).absolute()) if text and option.is_file else text
    return found


def _hybrid_connection(
    settings: DebugSettings, connection_string: str | None, environ: Mapping[str, str]
) -> str | None:
    """Return the name of the hybrid connection, from the connection string if necessary.

    None in a local run, or if the connection string is in a secret, which only the agent reads.
    """
    access = settings.access
    name, is_secret = access.hc, access.connection_string_secret is not None
    if name is None and not (access.namespace or is_secret):
        from relay_core.auth import find_connection_string

        file = access.connection_string_file
        try:
            name = find_connection_string(text=connection_string, file=file, environ=environ).entity_path
        except ConfigurationError:  # the agent will report the error, unless a secret is named
            is_secret = bool(environ.get(CONNECTION_STRING_SECRET_VARIABLE))
    if name is None and not is_secret and not is_local(settings, environ):
        raise UsageError("no hybrid connection given", hint=f"add --hc NAME, or set {HC}")
    return name


def _explain(error: OSError, program: Sequence[str], environ: Mapping[str, str]) -> tuple[RelayDebugError, int]:
    """Return why the command cannot be started, and the exit status that a shell would return."""
    name = program[0]
    found = shutil.which(name, mode=os.F_OK, path=environ.get("PATH"))
    hint = f"try: relay-agent run -- python {name}" if name.endswith(".py") else ""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        if found is not None:
            return ConfigurationError(f"the interpreter named in the first line of '{found}' is missing"), NOT_FOUND
        return ConfigurationError(f"command not found: '{name}'", hint=hint or "check the spelling and PATH"), NOT_FOUND
    if isinstance(error, PermissionError):
        hint = hint or f"if it is a program, run: chmod +x {name}"
    return ConfigurationError(f"cannot start '{name}': {error.strerror}", hint=hint), NOT_EXECUTABLE
