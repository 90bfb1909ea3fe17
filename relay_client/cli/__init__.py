"""The `relay-client` command."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from relay_core.errors import UsageError
from relay_core.program.console import configure_logging, run_program
from relay_core.program.options import access_settings, add_access_options

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

__all__ = ["main", "run"]

PROGRAM = "relay-client"
STOPPED = 130
"""Exit status of a command that was stopped before it was done."""
logger = logging.getLogger(__name__)


def run() -> None:
    """Entry point of the console script."""
    sys.exit(run_program(PROGRAM, main))


def main(argv: list[str]) -> int:
    """Run one command and return its exit status; see `relay_core.errors` for the codes."""
    arguments = _parser().parse_args(argv)
    configure_logging(PROGRAM, verbose=arguments.verbose)
    status: int = _explain(arguments) if arguments.explain_auth else arguments.command(arguments)
    return status


# The command line:


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Makes 127.0.0.1:<port> on this machine the debugger port of a job on compute you cannot reach.",
        epilog="Without a command: forward --ports and --forward until stopped with Ctrl-C. The connection string "
        "comes from --connection-string-file, RELAY_CONNECTION_STRING, RELAY_CONNECTION_STRING_FILE or a Key Vault "
        "secret, and needs the Send right; with --namespace the identity needs the role Azure Relay Sender.",
    )
    parser.add_argument("--ports", metavar="LIST", help="local ports, as in 5678, 5678-5680 or 5678,5690")
    parser.add_argument(
        "--forward",
        action="append",
        default=[],
        metavar="[NODE/]PORT[:LOCAL]",
        help="also carry this port of the node, e.g. 6006 of TensorBoard; repeatable",
    )
    parser.add_argument(
        "--no-listen",
        action="store_true",
        help="a port of --ports that another program holds is an error, not an editor that listens for the job",
    )
    _add_ask_ahead(parser, default=True)
    add_access_options(parser)
    parser.add_argument("--verbose", action="store_true", help="also log what only developers of relay-debug need")
    parser.set_defaults(command=_forward)

    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_targets(commands)
    _add_wait(commands)
    _add_attach(commands)
    _add_tensorboard(commands)
    _add_stacks(commands)
    _add_pdb(commands)
    _add_demo(commands)
    return parser


_Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _add_command(
    commands: _Commands[argparse.ArgumentParser],
    name: str,
    run_command: Callable[[argparse.Namespace], int],
    *,
    about: str,
    description: str,
) -> argparse.ArgumentParser:
    """Add a command that connects to the relay; options about that may stand before or behind its name."""
    parser = commands.add_parser(name, help=about, description=description, argument_default=argparse.SUPPRESS)
    parser.set_defaults(command=run_command)
    add_access_options(parser)
    parser.add_argument("--verbose", action="store_true", help="also log what only developers of relay-debug need")
    return parser


def _add_targets(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "targets",
        _targets,
        about="list the processes that can be debugged now",
        description="Lists node, rank, logical port, process, script and state of everything that can be debugged now.",
    )
    parser.add_argument("--json", action="store_true", default=False, help="for programs")


def _add_wait(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "wait",
        _wait,
        about="wait until ranks are there",
        description="Ends with status 0 when all these ranks are there, and with 14 when some are not in time.",
    )
    parser.add_argument("--ranks", required=True, metavar="LIST", help="global ranks, as in 3, 0-7 or 0,3-5")
    parser.add_argument(
        "--state",
        choices=("any", "waiting", "attached", "crashed"),
        default="any",
        help="which state counts: waiting for a debugger, held by one, or held at an exception (default: any)",
    )
    parser.add_argument("--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="default: 600")


def _add_attach(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "attach",
        _attach,
        about="wake the debugger of a running process and open its port",
        description="Starts debugpy in running processes and forwards their ports until stopped with Ctrl-C.",
    )
    parser.add_argument(
        "--rank", action="append", required=True, metavar="LIST", help="global rank, or several as in 4-5; repeatable"
    )
    parser.add_argument("--port", default=None, metavar="PORT", help="local port (default: the rank's logical port)")
    _add_ask_ahead(parser, default=argparse.SUPPRESS)


def _add_ask_ahead(parser: argparse.ArgumentParser, *, default: object) -> None:
    parser.add_argument(
        "--no-ask-ahead",
        dest="ask_ahead",
        action="store_false",
        default=default,
        help="let each question of the editor at a stop travel to the job by itself",
    )


def _add_tensorboard(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "tensorboard",
        _tensorboard,
        about="open a node's TensorBoard, or any web page, on this machine",
        description="Waits until an agent forwards the port, prints the URL, and forwards until stopped with Ctrl-C.",
    )
    parser.add_argument("--port", default="6006", metavar="[NODE/]PORT[:LOCAL]", help="default: 6006")


def _add_stacks(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "stacks",
        _stacks,
        about="show what all ranks are doing, equal ones together",
        description="Shows the stacks of all ranks, the odd ones first; works for processes that hang, too.",
    )
    parser.add_argument("--ranks", default="all", metavar="LIST", help="global ranks, as in 3 or 0-7 (default: all)")
    parser.add_argument("--locals", action="store_true", default=False, help="with the variables of each frame")
    parser.add_argument("--all-threads", action="store_true", default=False, help="not the main threads only")
    parser.add_argument("--json", action="store_true", default=False, help="for programs")


def _add_pdb(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands,
        "pdb",
        _pdb,
        about="debug a rank at a prompt, without an editor",
        description="Attaches to a rank, pauses it and takes pdb's commands; leaving it lets the job run on.",
    )
    parser.add_argument("--rank", type=int, default=0, metavar="RANK", help="global rank (default: 0)")
    parser.add_argument("--no-stop", action="store_true", default=False, help="let it run until a breakpoint or Ctrl-C")
    parser.add_argument(
        "-b", "--break", dest="breakpoints", action="append", default=[], metavar="FILE:LINE", help="repeatable"
    )


def _add_demo(commands: _Commands[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="see a breakpoint hit through a relay on this machine, without Azure",
        description="Starts a relay, a training job with its agent and a client on this machine, and debugs the job.",
    )
    demo.add_argument("--hold", action="store_true", help="start everything, then wait for your editor instead")
    demo.add_argument(
        "--chaos", action="store_true", help="cut the tunnel several times at the breakpoint, and go on stepping"
    )
    demo.add_argument("--verbose", action="store_true", help="also show what the programs print")
    demo.set_defaults(command=_demo)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


# The commands:


def _forward(arguments: argparse.Namespace) -> int:
    from relay_client.cli.forward_spec import debugger_ports, parse_forwards
    from relay_client.cli.port_ranges import parse_ports
    from relay_client.ports.forwarder import forward

    if not (arguments.ports or arguments.forward):
        raise UsageError("no ports are named", hint="add --ports 5678, or see relay-client --help")
    debuggers = debugger_ports(parse_ports(arguments.ports) if arguments.ports else [])
    forwards = parse_forwards(arguments.forward)
    if twice := {local.port for local in debuggers} & {local.port for local in forwards}:
        raise UsageError(
            f"local port {min(twice)} is in --ports and in --forward", hint="give the forward another, as in 6006:16006"
        )
    ports = [*debuggers, *forwards]
    return _connected(arguments, lambda tunnels: forward(tunnels, ports, may_reverse=not arguments.no_listen))


def _targets(arguments: argparse.Namespace) -> int:
    from relay_client.cli.targets import as_json, collect, plain_table, rows

    async def show(tunnels: Tunnels) -> None:
        agents = await collect(tunnels)
        if arguments.json:
            print(json.dumps(as_json(agents), indent=2))
        elif not _print_rich_table(lines := rows(agents, time.time())):
            print(plain_table(lines))

    _hush(arguments)
    return _connected(arguments, show)


def _wait(arguments: argparse.Namespace) -> int:
    from relay_client.cli.wait import wait_for_ranks
    from relay_client.ui.ranks import parse_ranks

    ranks = parse_ranks(arguments.ranks)
    done = False

    async def wait(tunnels: Tunnels) -> None:
        nonlocal done
        await wait_for_ranks(tunnels, ranks, state=arguments.state, within=arguments.timeout)
        done = True

    _connected(arguments, wait)
    return 0 if done else STOPPED


def _attach(arguments: argparse.Namespace) -> int:
    from relay_client.cli.attach import attach
    from relay_client.cli.port_ranges import parse_ports
    from relay_client.ui.ranks import parse_ranks

    ranks = parse_ranks(",".join(arguments.rank))
    port = parse_ports(arguments.port)[0] if arguments.port else None
    return _connected(arguments, lambda tunnels: attach(tunnels, ranks, port=port))


def _tensorboard(arguments: argparse.Namespace) -> int:
    from relay_client.cli.forward_spec import parse_forwards
    from relay_client.cli.tensorboard import tensorboard

    (local,) = parse_forwards([arguments.port])
    return _connected(arguments, lambda tunnels: tensorboard(tunnels, local, lambda url: print(url, flush=True)))


def _stacks(arguments: argparse.Namespace) -> int:
    from relay_client.cli.stacks import collect_stacks
    from relay_client.stacks.render import show_stacks, stacks_as_json
    from relay_client.ui.ranks import parse_ranks

    ranks = None if arguments.ranks == "all" else set(parse_ranks(arguments.ranks))

    async def show(tunnels: Tunnels) -> None:
        replies = await collect_stacks(tunnels, with_locals=arguments.locals)
        if arguments.json:
            print(stacks_as_json(replies, ranks=ranks, all_threads=arguments.all_threads))
            return
        looks = {"ranks": ranks, "locals": arguments.locals, "all_threads": arguments.all_threads}
        print(show_stacks(replies, **looks, color=sys.stdout.isatty()))

    _hush(arguments)
    return _connected(arguments, show)


def _pdb(arguments: argparse.Namespace) -> int:
    from relay_client.cli.pdb import session_of_rank
    from relay_client.pdb import run_pdb

    _hush(arguments)
    return run_pdb(
        session_of_rank(lambda: _make_tunnels(arguments), arguments.rank),
        title=f"rank {arguments.rank}",
        stop=not arguments.no_stop,
        breakpoints=arguments.breakpoints,
    )


def _demo(arguments: argparse.Namespace) -> int:
    from relay_client.demo import run_demo

    return run_demo(hold=arguments.hold, chaos=arguments.chaos, verbose=arguments.verbose)


def _explain(arguments: argparse.Namespace) -> int:
    from relay_core.net.tls import client_tls
    from relay_core.program.explain import explain_auth

    return explain_auth(PROGRAM, arguments, side="client", tls=client_tls(arguments.ca_file))


# What they share:


def _hush(arguments: argparse.Namespace) -> None:
    """Leave out the events, where the output is the answer to a question."""
    logging.getLogger("relay_client").setLevel(logging.DEBUG if arguments.verbose else logging.WARNING)


def _connected(arguments: argparse.Namespace, command: Callable[[Tunnels], Awaitable[None]]) -> int:
    """Run a command with the tunnels that the command line describes, until it is done or stopped."""
    from relay_core.program.run import run_until_stopped

    async def run() -> None:
        await command(await _make_tunnels(arguments))

    return run_until_stopped(run())


async def _make_tunnels(arguments: argparse.Namespace) -> Tunnels:
    """Find credentials, and return the tunnels that the command line describes, not yet entered."""
    from relay_client.agents.tunnels import CLIENT_GRACE, Tunnels
    from relay_core.auth import find_access
    from relay_core.net.session.secure_channel import NO_TUNNEL_KEY
    from relay_core.net.session.timers import tunnel_settings
    from relay_core.net.tls import client_tls

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
        ask_ahead=arguments.ask_ahead,
        alarm=_ring,
    )


def _ring() -> None:
    """Ring the terminal's bell, if there is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


def _print_rich_table(lines: list[tuple[str, ...]]) -> bool:
    """Print a table for people; False if stdout is no terminal or rich is not installed."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console
    except ImportError:
        return False
    from relay_client.ui.live_table import make_table

    Console().print(make_table(lines))
    return True
