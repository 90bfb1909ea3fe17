"""Commands that inspect or control running relay-clients; they need no credentials."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from relay_client.cli.common import Commands, add_command, add_flag, add_json, add_port, run_quietly
from relay_client.ui.text import format_ranks
from relay_core.errors import ConnectionLost, NoClient, NoListener, RelayDebugError, UsageError
from relay_core.program.options import argument_type

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient
    from relay_client.control.messages import LogLine, Request
    from relay_client.control.service import ControlService
    from relay_client.ranks.changes import Event

EXIT_TIMEOUT = 5.0
"""Seconds to wait until a relay-client that has closed its ports has exited; a zombie never does."""


def add_client(parser: argparse.ArgumentParser) -> None:
    """Add `--client`."""
    text = "use only the relay-client with this id, process id or hybrid connection, as shown by 'relay-client status'"
    parser.add_argument("--client", default="", metavar="NAME", help=text)


Command = Callable[[argparse.Namespace, "Sequence[ControlClient]"], Awaitable[None]]
"""Performs a command with the running relay-clients that the command line names."""


def _add_command(
    commands: Commands[argparse.ArgumentParser], name: str, command: Command, **texts: str
) -> argparse.ArgumentParser:
    """Add a command that inspects or controls running relay-clients; it needs no credentials."""
    parser = add_command(commands, name, functools.partial(_run, command), add_options=add_client, **texts)
    add_json(parser)
    return parser


def _run(command: Command, arguments: argparse.Namespace) -> int:
    """Run a command.

    Raises:
        NoClient: no running relay-client matches, or all are suspended.
    """
    from relay_client.control.client import running_clients

    async def run() -> None:
        async with running_clients(needs_one=True) as clients:
            await command(arguments, clients_named(clients, arguments.client))

    return run_quietly(arguments, run())


def clients_named(clients: Sequence[ControlClient], name: str) -> list[ControlClient]:
    """Return the relay-clients with this id, process id or hybrid connection, or all of them for "".

    Raises:
        NoClient: there are none.
    """
    found = [one for one in clients if not name or name in {one.about.id, str(one.about.pid), one.about.hc}]
    if found:
        return found
    if name:
        hint = "run 'relay-client status' to list those that are running"
        raise NoClient(f"no relay-client named '{name}' is running", hint=hint)
    raise NoClient("no relay-client is running", hint=f"to start one, run: relay-client --hc {_hc()} --ports 5678")


def _hc() -> str:
    """Return the hybrid connection that the connection string in the environment names, or a placeholder for it."""
    from relay_core.auth import find_connection_string

    with contextlib.suppress(RelayDebugError):
        return find_connection_string().entity_path or "NAME"
    return "NAME"


def only_client(clients: Sequence[ControlClient], option: str = "--client") -> ControlClient:
    """Return the only relay-client; the option is the one with which the user can choose it.

    Raises:
        UsageError: several relay-clients are running.
    """
    if len(clients) > 1:
        names = ", ".join(f"{client.about.id} ('{client.about.hc}')" for client in clients)
        raise UsageError(f"{len(clients)} relay-clients are running: {names}", hint=f"choose one with {option}")
    return clients[0]


async def results(
    clients: Sequence[ControlClient], request: Request, refused: type[RelayDebugError], *, stops_at_first: bool
) -> list[Any]:
    """Send a request to relay-clients one by one, and return the results, which have the type `request.result`.

    Args:
        clients: The relay-clients, at least one.
        request: The request.
        refused: The errors after which the request is sent to the next relay-client.
        stops_at_first: Whether to send the request to no other relay-client after the first result.

    Raises:
        RelayDebugError: every relay-client answered with an error; an error other than NoListener takes precedence.
    """
    found: list[Any] = []
    errors: list[RelayDebugError] = []
    for client in clients:
        try:
            found.append(await client.request(request))
        except refused as error:
            errors.append(error)
        if found and stops_at_first:
            break
    if not found:
        raise min(errors, key=lambda error: isinstance(error, NoListener))
    return found


def _as_json(value: object) -> str:
    """Return a value as indented JSON."""
    from relay_client.ranks.record import encode

    return json.dumps(encode(value), indent=2)


# `relay-client status`: shows nodes, ranks, local ports and connections of the running relay-clients.


def _add_status(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    _add_command(
        commands,
        "status",
        _status,
        summary="show nodes, ranks, stops and local ports",
        description="Shows this user's running relay-clients: their nodes, ranks and local ports, where each rank is "
        "stopped, and who holds it.",
    )


async def _status(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    """Print the state."""
    from relay_client.control.messages import GetStatus
    from relay_client.control.status_text import status_text

    found = await results(clients, GetStatus(), ConnectionLost, stops_at_first=False)
    if arguments.json:
        print(_as_json(tuple(found)))
    else:
        print("\n\n".join(status_text(status) for status in found))


# `relay-client release`: disconnects this machine's debuggers from a rank.


def _add_release(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = _add_command(
        commands,
        "release",
        _release,
        summary="disconnect a rank's debugger; the rank continues",
        description="Closes a running relay-client's connections to a rank, and the local port that 'attach' opened "
        "for that rank. The rank then continues at full speed.",
    )
    parser.set_defaults(command=_run_release)
    parser.add_argument("rank", type=int, nargs="?", default=None, metavar="RANK", help="global rank")
    add_port(parser, "logical port of the process; use it if several jobs have this rank")


def _run_release(arguments: argparse.Namespace) -> int:
    """Release the rank.

    Raises:
        UsageError: neither a rank nor a port is given, or both are.
    """
    if (arguments.rank is None) == (arguments.port is None):
        raise UsageError("give either a rank or a port", hint="run, for example, 'relay-client release 3'")
    try:
        return _run(_release, arguments)
    except NoClient as error:
        from relay_client.ports.rank_port import chosen

        which = chosen(arguments.rank, arguments.port)
        raise NoClient(
            error.sentence,
            hint=f"if 'relay-client pdb' holds the rank, enter q there; otherwise, run 'relay-client --hc {_hc()} pdb "
            f"{which}', and then enter q",
        ) from None


async def _release(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    from relay_client.control.messages import Release

    rank, port = arguments.rank, arguments.port
    # Only one of several relay-clients may hold the rank; the others refuse.
    (released,) = await results(clients, Release(rank, port), RelayDebugError, stops_at_first=True)
    if arguments.json:
        print(_as_json(released))
        return
    count = released.connections
    closed = f"{count} connection{'' if count == 1 else 's'} closed"
    print(f"{f'port {port}' if rank is None else format_ranks([rank])} is released: {closed}")


# `relay-client group`: chooses the ranks that move together in an editor's session of all ranks.


def _add_group(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = _add_command(
        commands,
        "group",
        _group,
        summary="choose the ranks that step together",
        description="Chooses the ranks that continue, step and pause together in editors that are attached to the "
        "--all-ranks port, as @group does in the debug console. Without GROUP, prints the current group.",
    )
    parser.add_argument(
        "group",
        nargs="?",
        default=None,
        metavar="GROUP",
        help="ranks in the group: all, here (the ranks at the same place as the rank that the editor shows), or a list "
        "such as 0,3-5",
    )


async def _group(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    """Choose the group."""
    from relay_client.control.messages import ChooseGroup

    (chosen,) = await results(clients, ChooseGroup(arguments.group), NoListener, stops_at_first=True)
    print(_as_json(chosen) if arguments.json else chosen.text)


# `relay-client logs`: shows the log lines of the running relay-clients.


def _add_logs(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = _add_command(
        commands,
        "logs",
        _logs,
        summary="show the log of a running relay-client",
        description="Shows the last log lines of the running relay-clients, even if their terminals have been closed.",
    )
    add_flag(parser, "--follow", "keep printing new lines until Ctrl-C")
    text = "number of lines to show (default: %(default)s)"
    parser.add_argument("--lines", type=argument_type(_parse_count), default=200, metavar="COUNT", help=text)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"invalid number of lines: '{text}'", hint="use a number, such as 50")
    return int(text)


async def _logs(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    """Print the lines."""
    from relay_client.control.messages import LogLine, Logs
    from relay_core.net.tasks import run_together

    async def show_one(client: ControlClient) -> None:
        name = client.about.id if len(clients) > 1 else ""
        found = await client.request(Logs(arguments.lines, arguments.follow))
        for line in found.lines:
            _print_line(line, client.about.id, name, as_json=arguments.json)
        if arguments.follow:
            async for event in client.events():
                line = LogLine(event.time, event.level or "", event.text)
                _print_line(line, client.about.id, name, as_json=arguments.json)

    await run_together(*(show_one(client) for client in clients))


def _print_line(line: LogLine, client: str, name: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"client": client, "time": line.time, "level": line.level, "text": line.text}), flush=True)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(line.time))
    level = "" if line.level == "info" else f"{line.level}: "
    print(f"{clock} {f'{name} ' if name else ''}{level}{line.text}", flush=True)


# `relay-client events`: prints the events of the running relay-clients as JSON lines.


def _add_events(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = _add_command(
        commands,
        "events",
        _events,
        summary="print events of running relay-clients as JSON lines",
        description="Prints the events of the running relay-clients, one JSON object per line, until they exit or you "
        "press Ctrl-C. The output is JSON with or without --json. The 'Control socket' page in the documentation "
        "lists the events.",
    )
    parser.add_argument(
        "--only", action="append", default=None, metavar="KIND", help="print only events of this kind; repeatable"
    )


async def _events(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    """Print the events."""
    from relay_client.control.messages import Subscribe
    from relay_core.net.tasks import run_together

    async def show_one(client: ControlClient) -> None:
        async for event in client.events():
            _print_event(event)

    for client in clients:
        await client.request(Subscribe(tuple(arguments.only) if arguments.only else None))
    print("waiting for events; press Ctrl-C to stop", file=sys.stderr, flush=True)
    await run_together(*(show_one(client) for client in clients))


async def print_own_events(service: ControlService) -> None:
    """Print the events of this process from now on; stop the process once nobody is reading them."""
    from relay_client.control.messages import Subscribe
    from relay_client.control.service import Subscriber

    def show(event: Event) -> None:
        try:
            _print_event(event)
        except BrokenPipeError:
            service.subscribers.discard(subscriber)
            service.stopping.set()

    subscriber = Subscriber(show)
    service.subscribers.add(subscriber)
    await service.answer(Subscribe(), subscriber)


def _print_event(event: Event) -> None:
    from relay_client.ranks.record import encode

    print(json.dumps(encode(event)), flush=True)


# `relay-client stop`: stops a running relay-client.


def _add_stop(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = _add_command(
        commands,
        "stop",
        _stop,
        summary="stop a running relay-client",
        description="Stops a running relay-client, as Ctrl-C does, and returns once it has exited, after at most 5 s.",
    )
    add_flag(parser, "--all", "stop all running relay-clients")


async def _stop(arguments: argparse.Namespace, clients: Sequence[ControlClient]) -> None:
    """Stop the relay-clients, and wait until they have exited."""
    from relay_client.control.messages import Stop

    chosen = clients if arguments.all else [only_client(clients)]
    for client in chosen:
        with contextlib.suppress(ConnectionLost):  # it has exited in the meantime
            await client.request(Stop())
    for client in chosen:
        await client.until_closed()
        has_exited = await _until_exited(client.about.pid)
        if not arguments.json:
            state = "has exited" if has_exited else "has closed its ports"
            print(f"relay-client {client.about.id} (pid {client.about.pid}) {state}")
    if arguments.json:
        print(_as_json(tuple(client.about for client in chosen)))


async def _until_exited(pid: int) -> bool:
    """Wait until a process of this user has exited, for at most `EXIT_TIMEOUT`; return whether it has."""
    import asyncio

    from relay_core.compat import TIMEOUT_ERRORS, timeout

    with contextlib.suppress(*TIMEOUT_ERRORS):
        async with timeout(EXIT_TIMEOUT):
            while os.name == "posix":  # on Windows, 0 is a signal
                try:
                    os.kill(pid, 0)
                except OSError:  # there is no such process, or the number belongs to another user by now
                    return True
                await asyncio.sleep(0.02)
    return False


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands, in the order in which `--help` lists them."""
    for add in (_add_status, _add_release, _add_group, _add_logs, _add_events, _add_stop):
        add(commands)
