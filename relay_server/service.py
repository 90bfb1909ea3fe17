"""A relay as a process: starts from a configuration file, reports that it is ready, and stops on a signal.

The first SIGTERM or SIGINT starts a graceful shutdown; a second one ends the process immediately (exit status 130).
SIGHUP, or a change to one of the relay's files, reloads the configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.net.tasks import TaskSet, cancel_and_wait, first_completed
from relay_core.program import run
from relay_core.program.run import raise_descriptor_limit
from relay_server.config.certificates import write_private
from relay_server.config.file import load
from relay_server.config.model import DelayProfile, RelayConfig
from relay_server.management import Management
from relay_server.reloading import Reloader
from relay_server.server import RelayServer

__all__ = ["serve_until_stopped"]

logger = logging.getLogger(__name__)

FORCED = 130


def serve_until_stopped(
    config_file: Path,
    *,
    port: int | None = None,
    ready_file: Path | None = None,
    delay_profile: str | None = None,
    ignore_selection: bool = False,
) -> int:
    """Serve until a signal; return the exit status.

    Args:
        config_file: Configuration in TOML.
        port: Overrides the port in the configuration.
        ready_file: File to which JSON with `port`, `address` and `ca_file` is written once the relay accepts
            connections; removed at the end.
        delay_profile: `azure` or None.
        ignore_selection: Ignore the listener selection headers, whatever the configuration.

    Raises:
        ConfigurationError: The configuration or the certificate is invalid, or the ready file cannot be written.
        LocalPortInUse: The port is in use by another program.
    """

    def adjust(config: RelayConfig) -> RelayConfig:
        if port is not None:
            config = replace(config, port=port)
        if delay_profile == "azure":
            config = replace(config, delays=DelayProfile.azure())
        if ignore_selection:
            config = replace(config, honour_listener_selection=False)
        return config

    return run.run(_serve(config_file, adjust, ready_file))


async def _serve(config_file: Path, adjust: Callable[[RelayConfig], RelayConfig], ready_file: Path | None) -> int:
    stop, force = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (force if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    raise_descriptor_limit()
    server = RelayServer(adjust(load(config_file)))
    await server.start()
    reloader = Reloader(server, config_file, adjust)
    loop.add_signal_handler(signal.SIGHUP, reloader.request)
    try:
        async with _management(server):
            _report_ready(server, ready_file)
            async with TaskSet() as tasks:
                tasks.spawn(reloader.run(), name="reload")
                await stop.wait()
            logger.info(
                "stopping: waiting up to %g s for connections to close (%d open); a second Ctrl-C exits immediately",
                *(server.config.limits.drain_timeout, server.metrics().connections),
            )
            return await _stop(server, force)
    finally:
        await server.kill()
        _remove_ready_file(ready_file)


@contextlib.asynccontextmanager
async def _management(server: RelayServer) -> AsyncIterator[None]:
    """Serve the management port, if there is one, until the shutdown is complete."""
    settings = server.config.management
    if settings is None:
        yield
        return
    async with Management(server, settings) as management:
        logger.info("serving the management port on http://%s:%d", settings.bind, management.port)
        yield


async def _stop(server: RelayServer, force: asyncio.Event) -> int:
    """Shut down gracefully, or immediately once `force` is set; return the exit status."""
    async with TaskSet() as tasks:
        orderly = tasks.spawn(server.stop(), name="stop in order")
        await first_completed(orderly, force.wait())
        if orderly.done():
            return 0
        await cancel_and_wait(orderly)
        return FORCED


def _remove_ready_file(ready_file: Path | None) -> None:
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)


def _report_ready(server: RelayServer, ready_file: Path | None) -> None:
    """Report that the relay is ready."""
    # The file is written before the log line, so that a program that waits for the line can read the file.
    address = f"wss://{server.public_address}"
    ca_file = None if server.ca_file is None else str(server.ca_file.resolve())
    if ready_file is not None:
        content = {"port": server.port, "address": address, "ca_file": ca_file}
        try:
            write_private(ready_file, json.dumps(content).encode())
        except OSError as error:
            raise ConfigurationError(f"cannot write {ready_file}: {error.strerror}") from error
    if ca_file is not None:
        logger.info("to trust the relay's certificate, run: export RELAY_CA_FILE=%s", shlex.quote(ca_file))
    logger.info("ready on %s", address)
