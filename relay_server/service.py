"""A relay as a process: starts from a configuration file, applies changes of it, and stops on a signal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import shlex
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.program.run import run_until_stopped
from relay_server.config.certificates import files_of, write_private
from relay_server.config.file import load
from relay_server.config.model import RelayConfig
from relay_server.management import Management
from relay_server.server import RelayServer

logger = logging.getLogger(__name__)


# Applies a changed configuration, certificate or key to a running relay without closing any connection.
#
# The status of each file is compared at intervals; the kernel does not watch the files. This also detects changes to a
# Kubernetes secret, which is replaced by swapping a symbolic link, and to files on network file systems.

INTERVAL = 2.0
"""Seconds between two comparisons."""
AT_LEAST_EVERY = 86400.0
"""Maximum number of seconds between two reloads. A reload also renews a certificate that was issued by the relay's own
CA and expires within 30 days.
"""

Fingerprint = dict[Path, tuple[int, int, int] | None]


class Reloader:
    """Reloads the configuration of a relay when one of its files has changed.

    Args:
        server: The running relay.
        config_file: Its configuration.
        adjust: Applies the options of the command line to a configuration.
    """

    def __init__(
        self,
        server: RelayServer,
        config_file: Path,
        adjust: Callable[[RelayConfig], RelayConfig] = lambda config: config,
    ) -> None:
        self._server = server
        self._config_file = config_file
        self._adjust = adjust
        self._seen = fingerprint(self._files())
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Reload now, whether or not a file has changed."""
        self._requested.set()

    async def run(self, interval: float = INTERVAL) -> None:
        """Compare the files until the task is cancelled."""
        last = time.monotonic()
        while True:
            await first_completed(self._requested.wait(), timeout=interval)
            found = fingerprint(self._files())
            is_due = time.monotonic() - last > AT_LEAST_EVERY
            if found != self._seen or is_due or self._requested.is_set():
                self._requested.clear()
                # Compared before the files are read, so that no change is missed; kept after a failure, so that the
                # same invalid files are reported only once.
                self._seen, last = found, time.monotonic()
                self.reload()

    def reload(self) -> bool:
        """Load and apply the configuration; return False, and change nothing, if it is invalid."""
        try:
            config = self._adjust(load(self._config_file))
            unchanged = _keep_fixed_settings(config, self._server.config)
            self._server.reload(unchanged)
        except ConfigurationError as error:
            logger.warning("ignoring the changed configuration, which is invalid: %s", error.sentence)
            return False
        logger.info("configuration reloaded")
        if unchanged != config:
            logger.warning(
                "changes other than those to [tls], rules, JWT issuers and hybrid connections take effect only after a "
                "restart"
            )
        return True

    def _files(self) -> list[Path]:
        config = self._server.config
        tls = files_of(config.tls)
        return [self._config_file, tls.certificate, tls.key, *(issuer.public_key for issuer in config.jwt_issuers)]


def fingerprint(files: Iterable[Path]) -> Fingerprint:
    """Return values that change when a file is written or replaced; None for a file that cannot be found."""
    found: Fingerprint = {}
    for file in files:
        try:
            status = file.stat()
        except OSError:
            found[file] = None
        else:
            found[file] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def _keep_fixed_settings(config: RelayConfig, current: RelayConfig) -> RelayConfig:
    """Return the current configuration, with all parts that a running relay can change taken from `config`."""
    return replace(
        current,
        tls=config.tls,
        rules=config.rules,
        jwt_issuers=config.jwt_issuers,
        hybrid_connections=config.hybrid_connections,
    )


# A relay as a process: starts from a configuration file, reports that it is ready, and stops on a signal.
#
# The first SIGTERM or SIGINT starts a graceful shutdown; a second one ends the process immediately (exit status 130).
# SIGHUP, or a change to one of the relay's files, reloads the configuration.


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
