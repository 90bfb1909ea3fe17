"""`relay-client demo`: debugs a sample job through a relay, all on this machine."""

from __future__ import annotations

import argparse

from relay_client.cli.common import Commands


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="debug a sample job on this machine, without Azure",
        description="Starts a relay, a training job, its agent and a client on this machine, then debugs the job.",
    )
    parser.add_argument("--hold", action="store_true", help="start everything, then wait for your editor to attach")
    parser.add_argument(
        "--chaos",
        action="store_true",
        help="cut the tunnel several times while the job is stopped at the breakpoint, then continue stepping; with "
        "--hold, cut it every 10 seconds",
    )
    parser.add_argument("--verbose", action="store_true", help="also show the output of the programs")
    parser.set_defaults(command=run, keeps_running=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from relay_client.demo.run import run_demo
    from relay_core.program.run import run_until_stopped

    return run_until_stopped(run_demo(hold=arguments.hold, chaos=arguments.chaos, verbose=arguments.verbose))
