"""`relay-client events`: prints the events of the running relay-clients as JSON lines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, run_with_clients

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient
    from relay_client.control.messages import Event
    from relay_client.control.service import ControlService

__all__ = ["add_parser", "print_own_events"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "events",
        run,
        summary="print events of running relay-clients as JSON lines",
        description="Prints the events of the running relay-clients, one JSON object per line, until they exit or you "
        "press Ctrl-C. The output is JSON with or without --json. The 'Control socket' page in the documentation "
        "lists the events.",
    )
    parser.add_argument(
        "--only", action="append", default=None, metavar="KIND", help="print only events of this kind; repeatable"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the events."""
    from relay_client.control.messages import Subscribe
    from relay_core.net.tasks import run_together

    async def show(clients: Sequence[ControlClient]) -> None:
        async def show_one(client: ControlClient) -> None:
            await client.request(Subscribe(tuple(arguments.only) if arguments.only else None))
            async for event in client.events():
                _print(event)

        await run_together(*(show_one(client) for client in clients))

    return run_with_clients(arguments, show)


async def print_own_events(service: ControlService) -> None:
    """Print the events of this process from now on; stop the process once nobody is reading them."""
    from relay_client.control.messages import Subscribe
    from relay_client.control.service import Subscriber

    def show(event: Event) -> None:
        try:
            _print(event)
        except BrokenPipeError:
            service.subscribers.discard(subscriber)
            service.stopping.set()

    subscriber = Subscriber(show)
    service.subscribers.add(subscriber)
    await service.answer(Subscribe(), subscriber)


def _print(event: Event) -> None:
    from relay_client.control.protocol import encode

    print(json.dumps(encode(event)), flush=True)
