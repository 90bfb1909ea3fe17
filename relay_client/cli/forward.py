"""`relay-client` without a command: forwards local ports until stopped."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from relay_client.cli import common
from relay_client.cli.running import print_own_events
from relay_client.ui.text import CHECK_PORTS, format_ports
from relay_client.verbs.targets import table_rows
from relay_core.errors import NoListener, RelayDebugError, UsageError
from relay_core.program.console import print_error
from relay_core.program.options import argument_type
from relay_core.value_parsers import named, parse_port

if TYPE_CHECKING:
    from relay_client.agents.roster import Roster
    from relay_client.agents.tunnels import Tunnels
    from relay_client.ports.forwarder import Forwarder
    from relay_client.ports.local_port import LocalPort

FORWARDING = "forwarding"
"""The `help` topic that lists all options of this command."""

logger = logging.getLogger(__name__)


def forwarding_options() -> argparse.ArgumentParser:
    """Return a parser whose help lists all options of this command."""
    parser = argparse.ArgumentParser(
        prog=common.PROGRAM,
        usage="%(prog)s [options]",
        description="Without a command, relay-client forwards the ports until you press Ctrl-C.",
        add_help=False,
    )
    add_options(parser, lists_all=True)
    return parser


def add_options(parser: argparse.ArgumentParser, *, lists_all: bool = False) -> None:
    """Add the options of this command, which is the default, to the main parser.

    Args:
        parser: The main parser.
        lists_all: Whether the parser's help also lists the many options that few users need.
    """
    parser.add_argument(common.PORTS[0], metavar="LIST", help="local ports, such as 5678-5680,5690 (default: 5678)")
    parser.add_argument(common.PORTS[1], dest="ports", help=argparse.SUPPRESS)  # for the length of this help
    text = "local port for debugging all ranks in one session"
    parser.add_argument("--all-ranks", type=argument_type(parse_port), metavar="PORT", help=text)
    text = "forward a port on a node, such as 6006; repeatable"
    parser.add_argument("--forward", action="append", default=[], metavar="[NODE/]PORT[:LOCAL]", help=text)
    text = "show the job on a page in a web browser"
    parser.add_argument("--ui", nargs="?", type=argument_type(parse_port), const=0, metavar="PORT", help=text)
    for each in _rare_options(parser):
        if not lists_all:
            each.help = argparse.SUPPRESS
    parser.set_defaults(command=run, keeps_running=True)


def _rare_options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    listening = parser.add_mutually_exclusive_group()
    yield listening.add_argument(
        "--listen",
        action="store_true",
        help="treat a program that is already using a port in --ports as your listening editor, even if it is not "
        "debugpy or this system does not show which user is running it",
    )
    yield listening.add_argument(
        "--no-listen",
        action="store_true",
        help="fail if a port in --ports is in use, instead of treating the program that is using it as a listening "
        "editor",
    )
    yield parser.add_argument(
        "--reuse",
        action="store_true",
        help="exit immediately with status 0 if one of your running relay-clients has opened some of the requested "
        "ports; it then opens the others, too",
    )
    yield from common.add_port_options(parser)
    yield parser.add_argument(
        "--json", action="store_true", help="print events as JSON lines on stdout, as 'relay-client events' does"
    )


def run(arguments: argparse.Namespace) -> int:
    """Forward `--ports` and `--forward`.

    The first line is `starting`. The last line before anything is forwarded is `ready` or `failed`. Editor tasks wait
    for these lines and show the errors between them; see `relay_client.editor_setup.vscode`.
    """
    logger.info("starting")
    try:
        return _forward(arguments)
    except RelayDebugError as error:
        print_error(common.PROGRAM, error)
        logger.info("failed")
        return error.exit_code


def _forward(arguments: argparse.Namespace) -> int:
    from relay_client.ports.local_port import all_ranks_port, debugger_ports, parse_forwards
    from relay_client.ui.text import parse_ports

    with named("--ports"):
        debuggers = debugger_ports(
            parse_ports(arguments.ports) if arguments.ports is not None else _default_ports(arguments)
        )
    with named("--forward"):
        forwards = parse_forwards(arguments.forward)
    job = [all_ranks_port(arguments.all_ranks)] if arguments.all_ranks else []
    _check_unique({"--ports": debuggers, "--forward": forwards, "--all-ranks": job})
    ports = [*debuggers, *forwards, *job]

    async def run() -> None:
        tunnels = await common.make_tunnels(arguments)
        if arguments.reuse and await _are_open(tunnels, ports):
            return
        await forward(tunnels, ports, arguments)

    return common.run_until_stopped(run(), closing=common.CLOSING_PORTS)


def _default_ports(arguments: argparse.Namespace) -> list[int]:
    """Return the port that a job's rank 0 has by default, if no option names a port or the page; otherwise none."""
    from relay_client.editor_setup.entries import DEFAULT_PORT

    if arguments.forward or arguments.all_ranks or arguments.ui is not None:
        return []
    logger.info("no --ports: using %d, the default port of a job", DEFAULT_PORT)
    return [DEFAULT_PORT]


def _check_unique(given: Mapping[str, Sequence[LocalPort]]) -> None:
    """Raise UsageError if two options name the same local port."""
    seen: dict[int, str] = {}
    for option, ports in given.items():
        for local in ports:
            if (other := seen.get(local.port, option)) != option:
                raise UsageError(
                    f"local port {local.port} is in both {other} and {option}",
                    hint="choose another local port, as in --forward 6006:16006",
                )
            seen[local.port] = option


async def _are_open(tunnels: Tunnels, ports: Sequence[LocalPort]) -> bool:
    """Return True, and log that the ports are ready, if another relay-client has opened them, or opens the rest."""
    from relay_client.control.client import client_that_forwards
    from relay_client.control.service import port_record

    wanted = [port_record(local) for local in ports]
    other = await client_that_forwards(tunnels.endpoint, wanted)
    if other is None:
        return False
    opened = format_ports(local.port for local in ports)
    logger.info("ready: relay-client (pid %d) has opened %s", other.pid, opened)
    return True


async def forward(tunnels: Tunnels, ports: Sequence[int | LocalPort], arguments: argparse.Namespace) -> None:
    """Forward until cancelled; raise permanent errors before any port is opened.

    Args:
        tunnels: The client's tunnels, not yet entered.
        ports: The local ports to open.
        arguments: The parsed command line.

    Raises:
        RelayDebugError: the relay, the credentials or the ports are unusable.
    """
    from relay_client.ports.forwarder import Forwarder

    forwarder = Forwarder(
        tunnels,
        ports,
        may_reverse=not arguments.no_listen,
        trust_unknown=arguments.listen,
        allow_terminate=arguments.allow_terminate,
    )
    tunnels.leads_to = lambda target: forwarder.leads_to(target.port)
    await common.run_controlled(
        "forward",
        tunnels,
        forwarder,
        _run_until_cancelled(tunnels, forwarder),
        idle_exit=arguments.idle_exit,
        ui_port=arguments.ui,
        watch=print_own_events if arguments.json else None,
    )


def _warn_of_other_ports(roster: Roster, forwarder: Forwarder) -> None:
    """Log a warning if processes are registered, but none of them has one of the ports in `--ports`."""
    destinations = [local.destination for local in (*forwarder.ports, *forwarder.editor_ports)]
    wanted = [each.port for each in destinations if not (each.is_forward or each.is_all_ranks)]
    if wanted and (registered := roster.ports()) and not set(wanted).intersection(registered):
        logger.warning(
            "no agent serves %s; registered: %s. hint: %s", format_ports(wanted), format_ports(registered), CHECK_PORTS
        )


async def _run_until_cancelled(tunnels: Tunnels, forwarder: Forwarder) -> None:
    import asyncio

    from relay_client.ports.forwarder import LOCAL_HOST
    from relay_client.ui.live_table import live_table
    from relay_core.net.session.transport import TooManySessions
    from relay_core.net.tasks import TaskSet

    try:
        await tunnels.discover_once_permitted()
        seen = tunnels.describe()
    except NoListener as error:
        seen = f"{error.sentence}; waiting for one ({error.hint})"
    except TooManySessions as error:
        seen = f"{error.sentence}; waiting for a place ({error.hint})"
    async with forwarder:
        opened = format_ports(forwarder.opened) if forwarder.opened else "without forwarded ports"
        if taken := [local.port for local in forwarder.editor_ports]:
            opened += f" ({format_ports(taken)} in use by another program)"
        logger.info("ready on %s, %s: %s", LOCAL_HOST, opened, seen)
        _warn_of_other_ports(tunnels.roster, forwarder)
        tunnels.keep_searching()
        async with TaskSet() as tasks, live_table(partial(table_rows, tunnels)):
            tasks.spawn(forwarder.check_forwards(), name="check --forward")
            await asyncio.Event().wait()
