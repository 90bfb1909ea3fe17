"""`relay-agent node-agent`: the agent process of a node; `relay_agent.node.in_job.connect` starts it from a job."""

from __future__ import annotations

import argparse
import os
import signal
import warnings
from pathlib import Path

from relay_agent.cli.common import Commands
from relay_agent.stderr import describe_exception, write_line

__all__ = ["COMMAND", "add_parser"]

COMMAND = "node-agent"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command, without a help text, so that `relay-agent --help` does not list it."""
    parser = commands.add_parser(
        COMMAND,
        aliases=["attend"],  # former name: a running job may start the agent of a newer installation
        description="Serves the processes of a node. relay_agent starts this command in a job and passes it two file "
        "descriptors.",
    )
    parser.add_argument("root", type=Path, help="the node's directory")
    parser.add_argument("name", help="this agent's name in the directory")
    parser.add_argument("listener", type=int, help="file descriptor of the socket for the node's processes")
    parser.add_argument("lock", type=int, help="file descriptor that holds the agent's lock")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the node's agent, in a child of this process, until its last process has exited."""
    _leave_process_tree()
    _receive_signals()
    try:
        from relay_agent.node.in_agent.server import serve_node
        from relay_core.errors import RelayDebugError
        from relay_core.program import run
    except (ImportError, MemoryError, OSError) as error:  # no memory or descriptors are left, or a package is missing
        write_line(f"the agent process cannot start: {describe_exception(error)}")
        return 1
    try:
        run.run(serve_node(arguments.root, arguments.name, arguments.listener, arguments.lock))
    except RelayDebugError as error:  # not printed: the processes have received it and log it with its consequence
        return error.exit_code
    return 0


def _leave_process_tree() -> None:
    """Continue in a child process and exit in the parent, so that the agent is detached from the job's process tree.

    Called before asyncio is imported, because a fork is safe only while there are no other threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and later warn if a package has started a thread at start-up
        if os.fork():
            os._exit(0)


def _receive_signals() -> None:
    """Unblock all signals: the thread of the job that has started this process blocks them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
