"""`relay-client init vscode`: reads VS Code's files, shows how they change, and writes them."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from relay_client.cli.common import PROGRAM, add_verbose
from relay_client.cli.forward import add_options
from relay_client.editor_setup.entries import Entry
from relay_client.editor_setup.vscode import (
    Places,
    access_arguments,
    launch_json,
    missing_secrets,
    task_environ,
    tasks_json,
)
from relay_client.ui.diff import unified_diff
from relay_core.errors import ConfigurationError
from relay_core.program.options import access_settings
from relay_core.value_parsers import format_ranges

__all__ = ["change_files"]

logger = logging.getLogger(__name__)


class _File(NamedTuple):
    """A file's current text and its new text."""

    path: Path
    before: str
    after: str


def change_files(arguments: argparse.Namespace, entries: Sequence[Entry], folder: Path) -> None:
    """Show the changes to launch.json and tasks.json; write the files if the command line has `--write`.

    Args:
        arguments: The command line, whose options the task gets.
        entries: What to configure.
        folder: The folder that VS Code opens; absolute.

    Raises:
        RelayDebugError: a file cannot be read, written or parsed, or the command line contains a secret.
    """
    logger.setLevel(logging.INFO)  # the search for targets may have silenced logging
    launch, tasks = (folder / ".vscode" / name for name in ("launch.json", "tasks.json"))
    old_launch, old_tasks = _read(launch), _read(tasks)
    files = [
        _File(launch, old_launch, launch_json(old_launch, entries, str(launch))),
        _File(tasks, old_tasks, _with_task(old_tasks, str(tasks), arguments, entries, folder)),
    ]
    changed = [file for file in files if file.after != file.before]
    _show(changed, folder)
    for file in changed if arguments.write else []:
        _write(file)
        logger.info("wrote %s", file.path)
    if not changed:
        logger.info("%s and %s are up to date", launch, tasks)
    elif not arguments.write:
        logger.info("no file was changed; add --write to apply these changes")


def _with_task(text: str, name: str, arguments: argparse.Namespace, entries: Sequence[Entry], folder: Path) -> str:
    """Return a tasks.json with a task that runs relay-client with the options on this command line."""
    settings, places = access_settings(arguments), Places(folder, Path.home(), Path.cwd())
    task = access_arguments(settings, places)
    for variable, option in missing_secrets(settings, os.environ).items():
        logger.warning(
            "%s is a secret, so it is not written to tasks.json: set it in VS Code's environment, or use %s",
            variable,
            option,
        )
    ports = [entry.port for entry in entries if not entry.is_job]
    task += ["--ports", format_ranges(ports), "--reuse", *_other_options(arguments)]
    return tasks_json(text, _program(places), task, task_environ(settings, os.environ, places), name)


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
    """Write a file atomically."""
    path = file.path.resolve()  # replace the target of a symbolic link, not the link
    try:
        path.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            new.write(file.after.encode())
        Path(new.name).chmod(path.stat().st_mode if path.exists() else 0o644)
        Path(new.name).replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}", hint="check the folder") from None
