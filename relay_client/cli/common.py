"""Functions that the commands share: they add commands and options to the parser, and create the tunnels."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relay_core.errors import UsageError
from relay_core.program.options import access_settings, add_access_options, argument_type
from relay_core.value_parsers import parse_duration, parse_port

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.control.service import ControlService
    from relay_client.ports.forwarder import Forwarder

PROGRAM = "relay-client"
CLOSING_PORTS = "closing the local ports and the tunnels"
"""What a command that forwards ports does when it is interrupted."""
PORTS = ("--ports", "--port")
"""The spellings of the option for several ports."""

logger = logging.getLogger(__name__)

T = TypeVar("T")

Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it
Container = argparse._ActionsContainer  # noqa: SLF001 - as above


def add_command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None] = add_access_options,
) -> argparse.ArgumentParser:
    """Add a command with `--verbose` and shared options, which may also precede the command's name.

    By default, the shared options are the options for access to the relay.
    """
    parser = commands.add_parser(name, help=summary, description=description, argument_default=argparse.SUPPRESS)
    parser.set_defaults(command=run, keeps_running=False)
    add_verbose(parser)
    add_options(parser)
    return parser


def add_flag(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    """Add an option without a value, which is False if it is not given."""
    parser.add_argument(option, action="store_true", default=False, help=text)


def add_port(parser: Container, text: str) -> None:
    """Add `--port`, which is None if it is not given."""
    parser.add_argument("--port", type=argument_type(parse_port), default=None, metavar="PORT", help=text)


def add_timeout(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--timeout`, whose default is 10 minutes."""
    kind = argument_type(parse_positive_duration)
    parser.add_argument("--timeout", type=kind, default="10m", metavar="TIME", help=text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Add `--ranks`, whose default is `all`."""
    parser.add_argument("--ranks", default="all", metavar="LIST", help="global ranks, such as 3 or 0-7 (default: all)")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add `--folder`."""
    text = "folder that the editor opens (default: the current directory)"
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help=text)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add `--verbose`."""
    parser.add_argument("--verbose", action="store_true", help="enable debug logging")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add `--quiet`."""
    parser.add_argument("--quiet", action="store_true", help="log only warnings and errors, and show no table")


def add_port_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add the options for all ports that the command opens: `--no-prefetch`, `--allow-terminate` and `--idle-exit`."""
    prefetch = "do not prefetch debugger state at stops, and do not answer an attaching editor's requests early"
    terminate = "let an editor terminate the job; by default, Stop and Terminate only detach the debugger"
    idle = "exit with status 0 once no editor has been connected for TIME, such as 30m or 2h (default: never)"
    duration = argument_type(parse_positive_duration)
    return [
        parser.add_argument("--no-prefetch", dest="prefetch", action="store_false", help=prefetch),
        parser.add_argument("--allow-terminate", action="store_true", help=terminate),
        parser.add_argument("--idle-exit", type=duration, metavar="TIME", help=idle),
    ]


def parse_positive_duration(text: str) -> float:
    """Return a duration above 0, in seconds.

    Raises:
        UsageError: the text is not such a duration.
    """
    seconds = parse_duration(text)
    if not seconds:
        raise UsageError(f"invalid duration: '{text}'", hint="use a duration above 0, such as 10m")
    return seconds


def quiet_logging(arguments: argparse.Namespace) -> None:
    """Log only warnings, for commands that print a result and exit."""
    logging.getLogger("relay_client").setLevel(logging.DEBUG if arguments.verbose else logging.WARNING)


def run_quietly(arguments: argparse.Namespace, coroutine: Coroutine[Any, Any, None]) -> int:
    """Run a coroutine that prints its results, with a log of warnings only, until it completes or is interrupted."""
    quiet_logging(arguments)
    return run_until_stopped(coroutine)


def run_for_result(coroutine: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine, and return its result, or None if it was interrupted."""
    result: T | None = None

    async def run() -> None:
        import asyncio

        nonlocal result
        found = await coroutine
        await asyncio.sleep(0)  # a coroutine that has only imported modules is cancelled here
        result = found

    with contextlib.closing(coroutine):
        run_until_stopped(run())
    return result


def run_until_stopped(coroutine: Coroutine[Any, Any, None], *, closing: str = "") -> int:
    """Run a coroutine until it completes or is interrupted; Ctrl-C during the import closes it, too.

    Args:
        coroutine: The command.
        closing: What the command does when it is interrupted, for the log.
    """
    with contextlib.closing(coroutine):
        from relay_core.program.run import run_until_stopped as run

        return run(coroutine, closing=closing)


async def run_controlled(
    command: str,
    tunnels: Tunnels,
    forwarder: Forwarder,
    body: Coroutine[Any, Any, None],
    *,
    idle_exit: float | None = None,
    ui_port: int | None = None,
    watch: Callable[[ControlService], Awaitable[None]] | None = None,
) -> None:
    """Run the body of a command that forwards ports; meanwhile, other programs of this user can control the command.

    Args:
        command: The command's name, as `relay-client status` shows it.
        tunnels: The tunnels that the body uses, not yet entered.
        forwarder: The ports that the body opens.
        body: The command's work; cancelled when another program requests a stop, or when `idle_exit` has passed.
        idle_exit: Seconds without a connection to the ports, after which the command exits; None for no limit.
        ui_port: Local port for the page in a web browser; 0 for a free one, None for no page.
        watch: Called before the body starts, to subscribe to events.
    """
    from relay_client.control.log_history import LogHistory
    from relay_client.control.server import ControlServer, client_id
    from relay_client.control.service import ControlService
    from relay_client.hang.waits import Waits
    from relay_client.ui.background import stderr_in_background
    from relay_core.net.tasks import TaskSet, first_completed

    with stderr_in_background(), LogHistory() as logs:
        service = ControlService(client_id(command, tunnels.endpoint), tunnels, forwarder, logs)
        if watch is not None:
            await watch(service)
        # The page closes before the tunnels, so that it keeps showing the last states of the job.
        async with ControlServer(service), tunnels, TaskSet() as background, contextlib.AsyncExitStack() as page:
            if ui_port is not None:
                from relay_client.page.server import PageServer

                server = await page.enter_async_context(PageServer(service, _print_link, ui_port))
                forwarder.on_open = server.show_link
            background.spawn(Waits(tunnels).keep(), name="find out which ranks wait")
            ends = [body, _stop_on_request(service)]
            if idle_exit is not None:
                ends.append(_exit_when_idle(forwarder, idle_exit))
            await first_completed(*ends)


async def _stop_on_request(service: ControlService) -> None:
    """Complete once another program has requested a stop."""
    await service.stopping.wait()
    logger.info("stopping at the request of another program, such as 'relay-client stop': %s", CLOSING_PORTS)


def _print_link(link: str) -> None:
    """Print the link to the page on stderr and not in the log, because anybody who has the link can open the page."""
    print(f"page (this link works once): {link}", file=sys.stderr, flush=True)


async def _exit_when_idle(forwarder: Forwarder, seconds: float) -> None:
    """Complete once no editor has been connected for `seconds`."""
    await forwarder.connections.until_idle(seconds)
    logger.info("exiting: no editor has been connected for %g s (--idle-exit)", seconds)


async def make_tunnels(arguments: argparse.Namespace) -> Tunnels:
    """Find credentials, and return the tunnels that the command line describes, not yet entered."""
    from relay_client.agents.tunnels import CLIENT_GRACE, Tunnels
    from relay_core.auth import find_access
    from relay_core.net.relay_tls import client_tls
    from relay_core.net.session.secure_channel import NO_TUNNEL_KEY
    from relay_core.net.session.settings import tunnel_settings

    settings, tls = access_settings(arguments), client_tls(arguments.ca_file)
    access = await find_access(settings, side="client", tls=tls)
    if access.tunnel_key is None:
        logger.warning(NO_TUNNEL_KEY)
    return Tunnels(
        access.endpoint,
        access.credential,
        tls,
        tunnel_key=access.tunnel_key,
        settings=tunnel_settings(grace=CLIENT_GRACE),
        prefetch=arguments.prefetch,
        alarm=_ring_bell,
    )


def _ring_bell() -> None:
    """Ring the terminal's bell, if stderr is a terminal; the live table rings it with the next line."""
    if sys.stderr.isatty():
        print("\a", end="", file=sys.stderr, flush=True)
