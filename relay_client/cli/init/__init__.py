"""`relay-client init`: configures an editor by editing its files or printing what to paste."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, quiet_logging, run_with_tunnels
from relay_core.errors import UsageError
from relay_core.program.options import argument_type
from relay_core.value_parsers import named, parse_port

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.editor_setup.entries import Entry
    from relay_core.agent_api.announcement import TargetInfo

__all__ = ["add_parser"]

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
    parser.add_argument("--ports", metavar="LIST", help="local ports for the ranks (default: 5678 plus the rank)")
    parser.add_argument(
        "--ranks",
        default=None,
        metavar="LIST",
        help="global ranks, such as 3 or 0-7 (default: one rank for each port, starting at 0)",
    )
    parser.add_argument(
        "--all-ranks",
        type=argument_type(parse_port),
        default=argparse.SUPPRESS,
        metavar="PORT",
        help="also add a configuration that debugs all ranks in one session, on this local port",
    )
    parser.add_argument(
        "--from-targets",
        action="store_true",
        default=False,
        help="use the ports and ranks of the currently registered processes",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder that the editor opens (default: the current directory)",
    )
    parser.add_argument("--write", action="store_true", default=False, help="write the changes to VS Code's files")


def run(arguments: argparse.Namespace) -> int:
    """Configure the editor."""
    editor, folder = arguments.editor, arguments.folder.absolute()
    if arguments.write and editor != VSCODE:
        raise UsageError(f"--write works only with {VSCODE}", hint=f"paste what 'relay-client init {editor}' prints")
    if not folder.is_dir():
        raise UsageError(f"--folder: no such folder: {folder}", hint="use the folder that the editor opens")
    entries = [*_entries(arguments), *_whole_job(arguments)]
    if editor == VSCODE:
        from relay_client.cli.init.vscode_files import change_files

        change_files(arguments, entries, folder)
    else:
        from relay_client.editor_setup.entries import SNIPPETS

        print(SNIPPETS[editor](entries, str(folder)))
    return 0


def _entries(arguments: argparse.Namespace) -> list[Entry]:
    """Return what to configure.

    Raises:
        RelayDebugError: the command line is invalid, or --from-targets finds no target.
    """
    from relay_client.editor_setup.entries import entries_for, entries_of
    from relay_client.number_lists import parse_ports, parse_ranks

    if arguments.from_targets and arguments.ports:
        raise UsageError("--ports and --from-targets cannot be combined", hint="omit one of them")
    with named("--ranks"):
        ranks = parse_ranks(arguments.ranks) if arguments.ranks else None
    if arguments.from_targets:
        return entries_of(_registered(arguments), ranks)
    with named("--ports"):
        ports = parse_ports(arguments.ports) if arguments.ports else None
    return entries_for(ports, ranks)


def _whole_job(arguments: argparse.Namespace) -> list[Entry]:
    from relay_client.editor_setup.entries import WHOLE_JOB, Entry

    return [Entry(WHOLE_JOB, arguments.all_ranks)] if arguments.all_ranks else []


def _registered(arguments: argparse.Namespace) -> list[TargetInfo]:
    """Return the targets of all agents, as `relay-client targets` lists them."""
    found: list[TargetInfo] | None = None

    async def search(tunnels: Tunnels) -> None:
        nonlocal found
        async with tunnels:
            await tunnels.discover_all()
            found = [target for agent in tunnels.roster for target in agent.targets]

    quiet_logging(arguments)
    run_with_tunnels(arguments, search)
    if found is None:  # Ctrl-C
        raise KeyboardInterrupt
    return found
