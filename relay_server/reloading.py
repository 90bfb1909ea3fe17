"""Applies a changed configuration, certificate or key to a running relay without closing any connection.

The status of each file is compared at intervals; the kernel does not watch the files. This also detects changes to a
Kubernetes secret, which is replaced by swapping a symbolic link, and to files on network file systems.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.net.tasks import first_completed
from relay_core.program.file_state import FileState
from relay_server.config.certificates import files_of
from relay_server.config.file import load
from relay_server.config.model import RelayConfig
from relay_server.server import RelayServer

logger = logging.getLogger(__name__)

INTERVAL = 2.0
"""Seconds between two comparisons."""
AT_LEAST_EVERY = 86400.0
"""Maximum number of seconds between two reloads. A reload also renews a certificate that was issued by the relay's own
CA and expires within 30 days.
"""


class Reloader:
    """Reloads the configuration of a relay when one of its files has changed.

    Args:
        server: The running relay.
        config_file: Its configuration.
        adjust: Applies the options of the command line to a configuration.
    """

    def __init__(self, server: RelayServer, config_file: Path, adjust: Callable[[RelayConfig], RelayConfig]) -> None:
        self._server = server
        self._config_file = config_file
        self._adjust = adjust
        self._seen = self._states()
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Reload now, whether or not a file has changed."""
        self._requested.set()

    async def run(self, interval: float = INTERVAL) -> None:
        """Compare the files until the task is cancelled."""
        last = time.monotonic()
        while True:
            await first_completed(self._requested.wait(), timeout=interval)
            found = self._states()
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

    def _states(self) -> dict[Path, FileState | None]:
        config = self._server.config
        tls = files_of(config.tls)
        files = [self._config_file, tls.certificate, tls.key, *(issuer.public_key for issuer in config.jwt_issuers)]
        return {file: FileState.of(file) for file in files}


def _keep_fixed_settings(config: RelayConfig, current: RelayConfig) -> RelayConfig:
    """Return the current configuration, with all parts that a running relay can change taken from `config`."""
    return replace(
        current,
        tls=config.tls,
        rules=config.rules,
        jwt_issuers=config.jwt_issuers,
        hybrid_connections=config.hybrid_connections,
    )
