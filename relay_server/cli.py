"""The `relay-server` command."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from relay_core.program.console import configure_logging, run_program
from relay_core.program.options import argument_type
from relay_core.program.parser import ProgramParser, add_version
from relay_core.value_parsers import parse_port

PROGRAM = "relay-server"
_EPILOG = """\
example:
  relay-server init ./relay --hc myhc
  relay-server serve --config ./relay/relay.toml

exit codes:
  0   stopped on request                   8    port in use
  2   invalid command line                 13   another program answers (status)
  3   invalid configuration                130  stopped by a second signal
  6   no relay answers (status)
"""


def run() -> None:
    """Entry point of the console script."""
    sys.exit(run_program(PROGRAM, main))


def main(argv: list[str]) -> int:
    """Run the command in `argv` and return the exit status.

    Raises:
        RelayDebugError: The command failed; the error has the exit status.
    """
    if argv and argv[0].startswith("--config"):
        argv = ["serve", *argv]
    arguments = make_parser().parse_args(argv)
    as_json = getattr(arguments, "log_format", "text") == "json"
    configure_logging(PROGRAM, verbose=getattr(arguments, "verbose", False), as_json=as_json)
    commands = {"init": _init, "serve": _serve, "status": _status}
    return commands[arguments.command](arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser: argparse.ArgumentParser = ProgramParser(
        prog=PROGRAM,
        description="A relay for laptops, CI and private clusters. It implements the protocol of\n"
        "Azure Relay Hybrid Connections.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    init = commands.add_parser(
        "init",
        help="write a configuration, keys, connection strings and a certificate",
        description="Writes a configuration, keys, connection strings and a certificate to a directory.",
    )
    init.add_argument(
        "directory", type=Path, metavar="DIR", help="directory to write to; existing files are not overwritten"
    )
    init.add_argument(
        "--hc",
        action="extend",
        nargs="+",
        required=True,
        metavar="NAME",
        help="hybrid connections to create; NAME:SIZE creates a family, for more than 25 nodes",
    )
    init.add_argument(
        "--port",
        type=argument_type(parse_port),
        default=8443,
        metavar="PORT",
        help="port to listen on (default: %(default)s)",
    )
    init.add_argument(
        "--namespace",
        default="localhost",
        metavar="HOST",
        help="host name that clients use; unless it is 'localhost', other machines can connect (default: %(default)s)",
    )
    serve = commands.add_parser(
        "serve",
        help="run the relay (the default if only --config is given)",
        description="Runs the relay until it is stopped. Reloads certificates, rules and hybrid connections when the "
        "files that define them change.",
    )
    serve.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="configuration file, as written by 'relay-server init'",
    )
    serve.add_argument(
        "--port",
        type=argument_type(_port_or_any),
        metavar="PORT",
        help="port to use instead of the configured one; 0 selects a free port",
    )
    serve.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="write the port, address and ca_file to this file, as JSON, once the relay is serving",
    )
    serve.add_argument(
        "--ignore-listener-selection",
        action="store_true",
        help="select a listener at random for every sender, ignoring the headers Microsoft-Relay-AllowedListeners and "
        "Microsoft-Relay-DisallowedListeners",
    )
    serve.add_argument("--verbose", action="store_true", help="enable debug logging")
    serve.add_argument(
        "--log-format",
        choices=["text", "json"],
        default="text",
        help="log format: lines of text, or one JSON object for each event (default: %(default)s)",
    )
    status = commands.add_parser(
        "status",
        help="show the state of a running relay, as reported by its management port",
        description="Shows the state of a running relay: its listeners, senders and relayed bytes. The relay's "
        "configuration must have a management port.",
    )
    status.add_argument("--config", type=Path, required=True, metavar="FILE", help="the relay's configuration file")
    status.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _port_or_any(text: str) -> int:
    return 0 if text.strip() == "0" else parse_port(text)


def _init(arguments: argparse.Namespace) -> int:
    from relay_server.config.provisioning import provision

    made = provision(arguments.directory, arguments.hc, namespace=arguments.namespace, port=arguments.port)
    print(f"created a configuration, a certificate and connection strings for: {', '.join(arguments.hc)}")
    print("start the relay:")
    print(f"  {PROGRAM} serve --config {shlex.quote(str(made.config_file))}")
    print("trust its certificate on the machines that run the job and the editor:")
    print(f"  export RELAY_CA_FILE={shlex.quote(str(made.ca_file))}")
    for agent, client in made.connection_files:
        print(f"connection strings, for the job and for relay-client:\n  {agent}\n  {client}")
    print("move these files to the machines that use them: with their tunnel key, this machine can read all traffic")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from relay_server.config.file import load
    from relay_server.management import fetch_status, format_status

    status = fetch_status(load(arguments.config))
    print(json.dumps(status, indent=2) if arguments.json else format_status(status))
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from relay_server.service import serve_until_stopped

    return serve_until_stopped(arguments)
