"""A relay as a process: starts from a configuration file, reports that it is ready, and stops on a signal.

The first SIGTERM or SIGINT starts a graceful shutdown; a second one ends the process immediately (exit status 130).
SIGHUP, or a change to one of the relay's files, reloads the configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import shlex
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.net.tasks import TaskSet
from relay_core.program.run import run_until_stopped
from relay_server.config.certificates import write_private
from relay_server.config.file import load
from relay_server.config.model import RelayConfig
from relay_server.management import Management
from relay_server.reloading import Reloader
from relay_server.server import RelayServer

logger = logging.getLogger(__name__)


def serve_until_stopped(options: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status.

    Args:
        options: The options of `relay-server serve`; those that are given take precedence over the configuration.

    Raises:
        ConfigurationError: The configuration or the certificate is invalid, or the ready file cannot be written.
        LocalPortInUse: The port is in use by another program.
    """

    def adjust(config: RelayConfig) -> RelayConfig:
        if options.port is not None:
            config = replace(config, port=options.port)
        if options.ignore_listener_selection:
            config = replace(config, honour_listener_selection=False)
        return config

    return run_until_stopped(_serve(options.config, adjust, options.ready_file))


async def _serve(config_file: Path, adjust: Callable[[RelayConfig], RelayConfig], ready_file: Path | None) -> None:
    """Serve until this is cancelled, then shut down gracefully; if it is cancelled again, immediately."""
    server = RelayServer(adjust(load(config_file)))
    await server.start()
    reloader = Reloader(server, config_file, adjust)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.request)
    try:
        async with contextlib.AsyncExitStack() as until_stopped:
            if (settings := server.config.management) is not None:
                management = await until_stopped.enter_async_context(Management(server, settings))
                logger.info("serving the management port on http://%s:%d", settings.bind, management.port)
            _report_ready(server, ready_file)
            try:
                async with TaskSet() as tasks:
                    tasks.spawn(reloader.run(), name="reload")
                    await asyncio.Event().wait()  # until a signal cancels this
            finally:
                logger.info(
                    "stopping: waiting up to %g s for connections to close (%d open); a second Ctrl-C exits "
                    "immediately",
                    *(server.config.limits.drain_timeout, server.metrics().connections),
                )
                await server.stop()
    finally:
        await server.kill()
        _remove_ready_file(ready_file)


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
