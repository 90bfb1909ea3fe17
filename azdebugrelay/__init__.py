"""The Python interface of the azure-debug-relay package, for jobs that still import it; relay-debug does the work.

    from azdebugrelay import DebugRelay, DebugMode, debugpy_connect_with_timeout

    debug_relay = DebugRelay(connection_string, "myhc", DebugMode.Connect, None, "127.0.0.1", 5678)
    debug_relay.open()
    debugpy_connect_with_timeout("127.0.0.1", 5678, 15)

These objects are for jobs: on the laptop, relay-client replaces the Azure Relay Bridge. No function here raises an
exception because of a relay, or waits longer than it is asked to.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import subprocess
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import relay_agent
from relay_agent.job.stderr import report_failure, write_line
from relay_agent.node.in_job.own_python import agent_environment, find_python
from relay_agent.settings.ranks import identify
from relay_core.errors import RelayDebugError

if TYPE_CHECKING:
    from relay_agent.debuggee.process import DebuggedProcess

__all__ = ["DebugMode", "DebugRelay", "debugpy_connect_with_timeout"]

Ports = str | int | Sequence[str] | Sequence[int]

END_TIME = 3
"""Seconds that an agent has to end before it is killed."""
SERVE = """
import os, signal, sys, threading
def end_with_job():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_job, daemon=True).start()
from relay_agent.cli import run
run()
"""
"""A relay-agent whose stdin is a pipe from the job, and which ends when the job does, even if the job is killed."""


class DebugMode(Enum):
    """Which side listens."""

    WaitForConnection = 1
    """The job calls `debugpy.listen`, and editors connect to it."""
    Listen = WaitForConnection
    Connect = 2
    """The job calls `debugpy_connect_with_timeout`."""
    Attach = Connect


class DebugRelay:
    """A way to this process through a hybrid connection.

    Args:
        access_key_or_connection_string: A connection string; an access key alone is not enough.
        relay_connection_name: Name of the hybrid connection.
        debug_mode: Which side listens.
        hybrid_connection_url: Ignored: the connection string contains it.
        host: Loopback address at which the job calls `debugpy.listen`.
        ports: Ports, as in the editor's launch configurations.
        az_relay_connection_wait_time: Maximum time in seconds that `open` waits for the relay.
        logger: Ignored: messages go to stderr.
    """

    opened: ClassVar[list[DebugRelay]] = []
    """Those of this process that are open."""

    def __init__(  # noqa: PLR0917 - callers pass these by position
        self,
        access_key_or_connection_string: str | None,
        relay_connection_name: str | None,
        debug_mode: DebugMode = DebugMode.WaitForConnection,
        hybrid_connection_url: str | None = None,  # noqa: ARG002
        host: str = "127.0.0.1",
        ports: Ports = "5678",
        az_relay_connection_wait_time: float = 60,
        logger: logging.Logger = logging.root,  # noqa: ARG002
    ) -> None:
        self._text = access_key_or_connection_string
        self._name = relay_connection_name
        self._mode = debug_mode
        self._host = host
        words = str(ports).replace(",", " ").split() if isinstance(ports, str | int) else ports
        self.ports = [str(word) for word in words]
        self._patience = az_relay_connection_wait_time
        self._agent: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @staticmethod
    def from_config(
        config_file: str,
        debug_mode: DebugMode = DebugMode.WaitForConnection,
        host: str = "127.0.0.1",
        ports: Ports = "5678",
    ) -> DebugRelay | None:
        """Return a relay with the settings in a file such as `.azrelay.json`; None if they are incomplete."""
        try:
            settings = json.loads(Path(config_file).read_text(encoding="utf-8-sig"))
            text, name = settings["AZRELAY_CONNECTION_STRING"], settings["AZRELAY_CONNECTION_NAME"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            report_failure(f"cannot read the relay's settings in {config_file}: {type(error).__name__}")
            return None
        return DebugRelay(text, name, debug_mode, None, host, ports)

    @staticmethod
    def from_environment(
        debug_mode: DebugMode = DebugMode.WaitForConnection, host: str = "127.0.0.1", ports: Ports = "5678"
    ) -> DebugRelay | None:
        """Return a relay with the settings in the environment; None if they are incomplete."""
        text, name = (os.environ.get(f"AZRELAY_CONNECTION_{each}") for each in ("STRING", "NAME"))
        if not text or not name:
            report_failure("AZRELAY_CONNECTION_STRING and AZRELAY_CONNECTION_NAME must both be set")
            return None
        return DebugRelay(text, name, debug_mode, None, host, ports)

    @staticmethod
    def kill_relays() -> None:
        """Close the relays that this process has opened; those of other processes may belong to other jobs."""
        for relay in [*DebugRelay.opened]:
            relay.close()

    def open(self, wait_for_connection: bool = True) -> None:
        """Make this process reachable: register it with its node's agent or, if the job listens, start an agent.

        Args:
            wait_for_connection: Whether to wait until the registered process's agent has reached the relay, or fails.
        """
        self.close()
        if not str(self._text).startswith("Endpoint="):
            report_failure("azdebugrelay needs a connection string, which starts with Endpoint=")
        elif self._mode is DebugMode.WaitForConnection:
            self._serve()
        else:
            _log_once(f"relay_agent.start_remote_debugging({self._name!r}, {', '.join(self.ports)}, wait=15)")
            DebugRelay.opened.append(self)
            if len(self.ports) == 1:  # other processes on this node may use the other ports
                self.connect(self.ports[0], 0)
                if (process := _registered()) is None:
                    self.close()
                elif wait_for_connection:
                    process.attaching.decided.wait(self._patience)

    def close(self) -> None:
        """End the agent of a job that listens. A registered process stays registered until it exits."""
        if self in DebugRelay.opened:
            DebugRelay.opened.remove(self)
        if self._agent is not None and self._owner == os.getpid():
            self._agent.terminate()
            try:
                self._agent.communicate(timeout=END_TIME)
            except subprocess.TimeoutExpired:
                self._agent.kill()
        self._agent = None

    def is_running(self) -> bool:
        """Return whether editors can reach this process, now or as soon as the agent reaches the relay."""
        if self not in DebugRelay.opened:
            return False
        if self._agent is not None:
            return self._agent.poll() is None
        process = _registered()
        return process is None or not process.attaching.hopeless.is_set()

    def _serve(self) -> None:
        """Start an agent for the ports at which the job listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host.replace("localhost", "127.0.0.1")
        ports = [word for port in self.ports for word in ("--port", f"{port}:{host}:{port}")]
        serve = ["serve", *(["--hc", self._name] if self._name else []), *ports, "--dap"]
        _log_once(f"relay-agent {' '.join(serve)}")
        try:
            self._agent = subprocess.Popen(
                [find_python(), "-c", SERVE, *serve],
                env=agent_environment() | {"RELAY_CONNECTION_STRING": str(self._text)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, RelayDebugError) as error:
            report_failure(f"cannot start the agent: {error}")
            return
        DebugRelay.opened.append(self)
        self._owner = os.getpid()
        atexit.register(DebugRelay.kill_relays)

    def connect(self, port: int | str, seconds: float) -> bool:
        """Register this process with a port, wait for an editor, and return whether one is connected."""
        with contextlib.suppress(ValueError):
            port = int(port) - identify(os.environ).rank  # callers name the port of each rank
        return relay_agent.start_remote_debugging(
            debug_relay_connection_name=self._name,
            debug_port=port,
            wait=seconds,
            debug_ranks="all",
            connection_string=self._text,
        )


def debugpy_connect_with_timeout(host: str, port: int | str, connect_timeout_seconds: float) -> bool:  # noqa: ARG001
    """Wait for an editor, and return whether it is connected.

    Without an open relay, such as in the second process of a node, the settings are those of the environment.

    Args:
        host: Ignored: the job opens no connection itself.
        port: Port in the editor's launch configuration.
        connect_timeout_seconds: Maximum time to wait.
    """
    opened = [relay for relay in DebugRelay.opened if str(port) in relay.ports]
    if not opened:
        _log_once(f"relay_agent.start_remote_debugging(None, {port}, wait={connect_timeout_seconds})")
    relay = opened[-1] if opened else DebugRelay(None, None, DebugMode.Connect)
    return relay.connect(port, connect_timeout_seconds)


def _registered() -> DebuggedProcess | None:
    from relay_agent.debuggee.process import current  # noqa: PLC0415 - in debug runs only

    return current()


@functools.cache
def _log_once(call: str) -> None:
    write_line(f"azdebugrelay is deprecated; use instead: {call}")
