"""`relay-client init`: configures an editor by editing its files or printing what to paste."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from relay_client.cli.common import PORTS, PROGRAM, Commands, add_command, add_flag, add_folder, add_verbose
from relay_client.cli.forward import add_options
from relay_client.cli.inspection.asking import perform_once
from relay_client.cli.running import add_client
from relay_client.ui.text import parse_ports, parse_ranks
from relay_core.errors import ConfigurationError, UsageError
from relay_core.foreign import escape_controls
from relay_core.program.options import access_settings, argument_type
from relay_core.value_parsers import format_ranges, named, parse_port

if TYPE_CHECKING:
    from relay_client.editor_setup.entries import Entry
    from relay_client.editor_setup.vscode import Places
    from relay_core.agent_api.announcement import TargetInfo

logger = logging.getLogger(__name__)

VSCODE = "vscode"
EDITORS = (VSCODE, "nvim", "pycharm", "zed", "emacs")


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "init",
        run,
        summary="configure your editor so that F5 attaches to the job",
        description="Shows the necessary changes to VS Code's launch.json and tasks.json; with --write, applies them. "
        "Comments and other entries are kept. For other editors, prints what to paste.",
    )
    parser.add_argument("editor", choices=EDITORS, help="your editor")
    parser.add_argument(*PORTS, metavar="LIST", help="local ports for the ranks (default: 5678 plus the rank)")
    text = "global ranks, such as 3 or 0-7 (default: one rank for each port, starting at 0)"
    parser.add_argument("--ranks", default=None, metavar="LIST", help=text)
    parser.add_argument(
        "--all-ranks",
        type=argument_type(parse_port),
        default=argparse.SUPPRESS,
        metavar="PORT",
        help="also add a configuration that debugs all ranks in one session, on this local port",
    )
    add_flag(parser, "--from-targets", "use the ports and ranks of the currently registered processes")
    add_client(parser)
    add_folder(parser)
    add_flag(parser, "--write", "write the changes to VS Code's files")
    add_flag(parser, "--remove", "show how to remove what init has added to VS Code's files; with --write, remove it")


def run(arguments: argparse.Namespace) -> int:
    """Configure the editor."""
    editor, folder = arguments.editor, arguments.folder.absolute()
    if (arguments.write or arguments.remove) and editor != VSCODE:
        option = "--remove" if arguments.remove else "--write"
        raise UsageError(f"{option} works only with {VSCODE}", hint=f"paste what 'relay-client init {editor}' prints")
    if not folder.is_dir():
        raise UsageError(f"--folder: no such folder: {folder}", hint="use the folder that the editor opens")
    entries = [] if arguments.remove else _entries(arguments)
    if editor == VSCODE:
        _change_files(arguments, entries, folder)
    else:
        from relay_client.editor_setup.entries import SNIPPETS

        print(SNIPPETS[editor](entries, str(folder)))
    return 0


def _entries(arguments: argparse.Namespace) -> list[Entry]:
    """Return what to configure.

    Raises:
        RelayDebugError: the command line is invalid, or --from-targets finds no target.
    """
    from relay_client.editor_setup.entries import ALL_RANKS, Entry, entries_for, entries_of

    if arguments.from_targets and arguments.ports:
        raise UsageError("--ports and --from-targets cannot be combined", hint="omit one of them")
    with named("--ranks"):
        ranks = parse_ranks(arguments.ranks) if arguments.ranks else None
    if arguments.from_targets:
        entries = entries_of(_registered(arguments), ranks)
    else:
        with named("--ports"):
            ports = parse_ports(arguments.ports) if arguments.ports else None
        entries = entries_for(ports, ranks)
    return [*entries, Entry(ALL_RANKS, arguments.all_ranks)] if arguments.all_ranks else entries


def _registered(arguments: argparse.Namespace) -> list[TargetInfo]:
    """Return the targets of all agents, as `relay-client targets` lists them."""
    from relay_client.verbs.targets import Targets
    from relay_core.agent_api.announcement import TargetInfo

    answer = perform_once(arguments, Targets())
    if answer is None:  # Ctrl-C
        raise KeyboardInterrupt
    listed: Any = answer.data
    return [TargetInfo(each["port"], each.get("rank")) for node in listed["nodes"] for each in node["targets"]]


# VS Code's files: read, shown with their changes, and written.

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_NO_COLOUR = "\x1b[0m"


def unified_diff(before: str, after: str, name: str, *, colour: bool) -> Iterator[str]:
    """Yield the lines of a unified diff without line endings; no lines if the texts are equal.

    Args:
        before: The current text; "" if the file does not exist.
        after: The new text.
        name: Name of the file.
        colour: Whether to add the colours of a terminal.
    """
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (now)" if before else "(no file)", name, lineterm=""
    )
    for line in lines:
        shown = escape_controls(line.expandtabs(4))
        mark = _COLOURS.get(line[0]) if colour else None
        yield f"{mark}{shown}{_NO_COLOUR}" if mark else shown


class _File(NamedTuple):
    """A file's current text and its new text."""

    path: Path
    before: str
    after: str


def _change_files(arguments: argparse.Namespace, entries: Sequence[Entry], folder: Path) -> None:
    """Show the changes to launch.json and tasks.json; write the files if the command line has `--write`.

    Args:
        arguments: The command line, whose options the task gets.
        entries: What to configure.
        folder: The folder that VS Code opens; absolute.

    Raises:
        RelayDebugError: a file cannot be read, written or parsed, or the command line contains a secret.
    """
    from relay_client.editor_setup.vscode import launch_json, without_ours

    logger.setLevel(logging.INFO)  # the search for targets may have silenced logging
    launch, tasks = (folder / ".vscode" / name for name in ("launch.json", "tasks.json"))
    old_launch, old_tasks = _read(launch), _read(tasks)
    if arguments.remove:
        new_launch, new_tasks = without_ours(old_launch, str(launch)), without_ours(old_tasks, str(tasks))
    else:
        new_launch = launch_json(old_launch, entries, str(launch))
        new_tasks = _with_task(old_tasks, str(tasks), arguments, entries, folder)
    files = [_File(launch, old_launch, new_launch), _File(tasks, old_tasks, new_tasks)]
    changed = [file for file in files if file.after != file.before]
    _show(changed, folder)
    for file in changed if arguments.write else []:
        _write(file)
        logger.info("%s %s", "wrote" if file.after else "removed", file.path)
    if not changed:
        state = "contain nothing to remove" if arguments.remove else "are up to date"
        logger.info("%s and %s %s", launch, tasks, state)
    elif not arguments.write:
        logger.info("no file was changed; add --write to apply these changes")


def _with_task(text: str, name: str, arguments: argparse.Namespace, entries: Sequence[Entry], folder: Path) -> str:
    """Return a tasks.json with a task that runs relay-client with the options on this command line.

    Without `--hc`, the task keeps the one that it has.
    """
    from relay_client.editor_setup import vscode

    arguments.hc = arguments.hc or vscode.task_hc(text, name)
    settings, places = access_settings(arguments), vscode.Places(folder, Path.home(), Path.cwd())
    task = vscode.access_arguments(settings, places)
    if settings.hc and not (settings.namespace or settings.connection_string_secret):
        _check_name(settings.hc, settings.connection_string_file)
    for variable, option in vscode.missing_secrets(settings, os.environ).items():
        logger.warning(
            "%s is a secret, so it is not written to tasks.json: set it in VS Code's environment, or use %s",
            variable,
            option,
        )
    ports = [entry.port for entry in entries if not entry.is_job]
    task += ["--ports", format_ranges(ports), "--reuse", *_other_options(arguments)]
    return vscode.tasks_json(text, _program(places), task, vscode.task_environ(settings, os.environ, places), name)


def _check_name(hc: str, file: str | None) -> None:
    """Check that the connection string which the task will use, if there is one yet, is for this hybrid connection.

    Raises:
        ConfigurationError: it is for another one.
    """
    from relay_core.auth import find_connection_string

    try:
        find_connection_string(file=file)
    except ConfigurationError:
        return  # there is none, or relay-client will report that it is invalid
    find_connection_string(file=file, hc=hc)


def _other_options(arguments: argparse.Namespace) -> list[str]:
    """Return the other options of relay-client, which precede `init` on its command line."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser)
    add_verbose(parser)
    found: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list options
        value = getattr(arguments, action.dest)
        if action.dest in {"ports", "reuse"} or value == action.default:
            continue
        values = value if isinstance(value, list) else [value]
        for each in values:
            found += [action.option_strings[0]] if action.nargs == 0 else [action.option_strings[0], str(each)]
    return found


def _program(places: Places) -> str:
    """Return the task's command: a path if VS Code's shells cannot find this relay-client by name."""
    own = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    if own is None or sys.prefix == sys.base_prefix:
        return PROGRAM
    found = shutil.which(PROGRAM)
    is_found_elsewhere = found is not None and Path(found).parent != Path(own).parent
    # A link outside the virtual environment, such as one made by pipx, is on the PATH of every shell.
    if is_found_elsewhere and Path(found or "").resolve() == Path(own).resolve():
        return PROGRAM
    return places.portable(own)


def _read(path: Path) -> str:
    """Return the text of a file with its original line endings; "" if the file does not exist."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a UTF-8 file", hint="save it as UTF-8") from None


def _show(files: Sequence[_File], folder: Path) -> None:
    """Print a diff, in colour on a terminal."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for file in files:
        for line in unified_diff(file.before, file.after, file.path.relative_to(folder).as_posix(), colour=colour):
            print(line)
    sys.stdout.flush()  # the diff must appear before the log lines


def _write(file: _File) -> None:
    """Write a file atomically; remove a file that has no text, and its folder if that is then empty."""
    path = file.path.resolve()  # replace the target of a symbolic link, not the link
    try:
        if not file.after:
            file.path.unlink()
            with contextlib.suppress(OSError):
                file.path.parent.rmdir()
            return
        path.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            new.write(file.after.encode())
        Path(new.name).chmod(path.stat().st_mode if path.exists() else 0o644)
        Path(new.name).replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}", hint="check the folder") from None
