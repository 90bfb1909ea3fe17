"""`relay-client tensorboard`: waits for a forwarded web server and says where to find it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from relay_client.agents.tunnels import Tunnels
from relay_client.cli.forward_spec import LocalPort
from relay_client.ports.forwarder import LOCAL_HOST, Forwarder

__all__ = ["tensorboard"]

logger = logging.getLogger(__name__)


async def tensorboard(tunnels: Tunnels, local: LocalPort, show: Callable[[str], None]) -> None:
    """Forward a port until cancelled; its URL is shown once an agent serves it.

    Args:
        tunnels: Not yet entered.
        local: The local port and what it stands for.
        show: Takes the URL.

    Raises:
        LocalPortInUse: the local port cannot be had.
        RelayDebugError: the relay or the credentials are unusable.
    """
    wanted = local.destination
    async with tunnels, Forwarder(tunnels, [local]):
        await tunnels.seeker.until(
            lambda: tunnels.server_of(wanted),
            lambda error: logger.warning("waiting: %s", tunnels.why_not(wanted, error)),
        )
        tunnels.keep_looking()
        show(f"http://{LOCAL_HOST}:{local.port}/")
        await asyncio.Event().wait()
