"""The commands of `relay-agent` except `run`: `doctor`, `env`, `node-agent` and `serve`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import warnings
from pathlib import Path

from relay_agent.job.stderr import describe_exception, write_line
from relay_agent.settings.model import DEFAULT_PORT
from relay_core.errors import UsageError
from relay_core.program.options import access_settings, add_access_options, argument_type
from relay_core.value_parsers import parse_port

PROGRAM = "relay-agent"

Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _add_port_option(parser: argparse.ArgumentParser) -> None:
    """Add `--port`."""
    text = "logical port of rank 0 (default: %(default)s)"
    parser.add_argument("--port", type=argument_type(parse_port), default=DEFAULT_PORT, metavar="PORT", help=text)


# `relay-agent doctor`: checks, from inside a step, everything that the step's agent will need.


def add_doctor(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="check the connection from this node to the relay",
        description="With the settings that a job on this node would use, checks everything that debugging needs: the "
        "configuration, proxy, host name, port, certificate, clock, private endpoint, token, Listen right, hybrid "
        "connection, listener, tunnel key, debugpy and rank. Prints what to do about each failure. The exit status is "
        "0 if no check fails; otherwise, it is the exit code of the first failure.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_port_option(parser)
    add_access_options(parser)
    parser.set_defaults(command=_run_doctor)


def _run_doctor(arguments: argparse.Namespace) -> int:
    """Run the checks, print the results and return the exit status."""
    from relay_agent.cli.doctor import examine
    from relay_core.program.explain import run_checks

    return run_checks(arguments, examine(access_settings(arguments), port=arguments.port))


# `relay-agent env`: prints the rank that the environment of a process defines.


def add_env(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "env",
        help="print the rank that this environment defines, and its source",
        description="Prints the rank of a process started in this environment, and the launcher whose variables "
        "define it.",
    )
    _add_port_option(parser)
    parser.set_defaults(command=_run_env)


def _run_env(arguments: argparse.Namespace) -> int:
    """Print the rank and the variables that define it."""
    from relay_agent.settings.ranks import explain

    print(*explain(os.environ, arguments.port), sep="\n")
    return 0


# `relay-agent node-agent`: the agent process of a node; `relay_agent.node.in_job.reach_agent` starts it from a job.

NODE_AGENT = "node-agent"
_PATIENCE = 10.0
"""Maximum time in seconds that an agent which cannot start waits for the process that has started it."""


def add_node_agent(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command, without a help text, so that `relay-agent --help` does not list it."""
    parser = commands.add_parser(
        NODE_AGENT,
        description="Serves the processes of a node. relay_agent starts this command in a job and passes it file "
        "descriptors.",
    )
    parser.add_argument("root", type=Path, help="the node's directory")
    parser.add_argument("name", help="this agent's name in the directory")
    parser.add_argument("listener", type=int, help="file descriptor of the socket for the node's processes")
    parser.add_argument("lock", type=int, help="file descriptor that holds the agent's lock")
    text = "file descriptor to which an agent that was started detached from the job writes a line when it runs"
    parser.add_argument("running", type=int, nargs="?", help=text)
    parser.set_defaults(command=_run_node_agent)


def _run_node_agent(arguments: argparse.Namespace) -> int:
    """Run the node's agent until its last process has exited."""
    try:
        if arguments.running is None:
            _leave_process_tree()
        else:
            _report_running(arguments.running)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that has started this process blocks all signals
        from relay_agent.node.in_agent.server import serve_node
        from relay_core.errors import RelayDebugError
        from relay_core.program import run
    except ImportError as error:
        _refuse(arguments, error)
        return 1
    except (MemoryError, OSError) as error:  # no memory, descriptors or processes are left
        write_line(f"the agent process cannot start: {describe_exception(error)}")
        return 1
    try:
        run.run(serve_node(arguments.root, arguments.name, arguments.listener, arguments.lock))
    except RelayDebugError as error:  # not printed: the processes have received it and log it with its consequence
        return error.exit_code
    return 0


def _refuse(arguments: argparse.Namespace, error: ImportError) -> None:
    """Send the process that has started this one why the agent cannot start, so that it starts no other."""
    import socket

    from relay_agent.node.directory import NodeDirectory
    from relay_agent.node.protocol import MAX_LINE, encode

    hint = f"install relay-debug and its dependencies for {sys.executable}"
    if os.environ.get("LD_LIBRARY_PATH"):
        hint = "LD_LIBRARY_PATH may lead to other versions of the libraries that Python needs; try without it"
    with socket.socket(fileno=arguments.listener) as server:
        server.settimeout(_PATIENCE)
        with contextlib.suppress(OSError), server.accept()[0] as process:
            process.recv(MAX_LINE)
            NodeDirectory(arguments.root, arguments.name).clean()
            process.sendall(
                encode({"failed": f"the agent process cannot start: {describe_exception(error)}", "hint": hint})
            )


def _leave_process_tree() -> None:
    """Continue in a child process and exit in the parent, so that the agent is detached from the job's process tree.

    Called before asyncio is imported, because a fork is safe only while there are no other threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and later warn if a package has started a thread at start-up
        if os.fork():
            os._exit(0)


def _report_running(descriptor: int) -> None:
    """Let the process that has started this one continue."""
    with contextlib.suppress(OSError):  # it has exited
        os.write(descriptor, b"\n")
    os.close(descriptor)


# `relay-agent serve`: makes ports of this machine available to clients.


def add_serve(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "serve",
        help="make local ports available to clients until stopped",
        description="Makes the given ports on this machine, and no others, available to the clients of a hybrid "
        "connection.",
        epilog="The connection string comes from --connection-string-file, RELAY_CONNECTION_STRING, "
        "RELAY_CONNECTION_STRING_FILE or a Key Vault secret, and needs the Listen right; with --namespace, the "
        "identity needs the Azure Relay Listener role.",
    )
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT[:[ADDRESS:]LOCAL]",
        help="port to serve: clients connect to PORT, and the program listens on port LOCAL (default: PORT) at the "
        "loopback address ADDRESS (default: 127.0.0.1), as in 5678:[::1]:40123; repeatable",
    )
    parser.add_argument(
        "--dap",
        action="store_true",
        help="treat the ports as debugpy ports: accept only programs that use the Debug Adapter Protocol, and never "
        "probe the ports",
    )
    add_access_options(parser)
    parser.set_defaults(command=_run_serve)


def _run_serve(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    from relay_agent.agent.agent import Agent
    from relay_agent.agent.port_targets import parse_targets
    from relay_core.auth import find_access
    from relay_core.net.relay_tls import client_tls
    from relay_core.program.run import run_until_stopped
    from relay_core.value_parsers import named

    if not arguments.port:
        raise UsageError("no ports given", hint="add --port 5678, or run: relay-agent serve --help")
    with named("--port"):
        targets = parse_targets(arguments.port, dap_only=arguments.dap)
    settings, tls = access_settings(arguments), client_tls(arguments.ca_file)

    async def serve() -> None:
        access = await find_access(settings, side="agent", tls=tls)
        agent = Agent(access.endpoint, access.credential, targets, tunnel_key=access.tunnel_key, tls=tls)
        await agent.run()

    return run_until_stopped(serve(), closing="closing the client connections")
