"""`relay-server status`: queries the management port of a running relay, and formats the answer."""

from __future__ import annotations

import http.client
import json
from typing import Any

from relay_core.errors import ConfigurationError, ProtocolError, RelayUnreachable
from relay_server.config.model import RelayConfig

__all__ = ["fetch_status", "format_status"]

TIMEOUT = 5.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - connected to, not bound
"""Where a server that is bound to all addresses can be reached from its own machine."""


def fetch_status(config: RelayConfig) -> dict[str, Any]:
    """Return the status of the relay with this configuration.

    Raises:
        ConfigurationError: The configuration has no management port.
        RelayUnreachable: Nothing answers there.
        ProtocolError: Another program answers there.
    """
    settings = config.management
    if settings is None or not settings.port:
        raise ConfigurationError(
            "the configuration has no management port", hint="add [management] with a 'port', and restart the relay"
        )
    host = ANY_ADDRESS.get(settings.bind, settings.bind)
    connection = http.client.HTTPConnection(host, settings.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except OSError as error:
        raise RelayUnreachable(
            f"no relay answers at http://{host}:{settings.port}: {error.strerror or 'no answer in time'}",
            hint="check that relay-server is running with this configuration",
        ) from error
    except (http.client.HTTPException, ValueError):
        status = None
    finally:
        connection.close()
    if not isinstance(status, dict) or "metrics" not in status:
        raise ProtocolError(f"another program answers at http://{host}:{settings.port}")
    return status


def format_status(status: dict[str, Any]) -> str:
    """Return lines for a terminal."""
    metrics = status["metrics"]
    state = "serving" if status["serving"] else "shutting down"
    hours, minutes = divmod(status["uptime"] // 60, 60)
    lines = [
        f"{status['address']}  {state} for {hours} h {minutes} min  version {status['version']}",
        f"connections: {metrics['connections']}",
        f"senders: {metrics['active_senders']} connected to a listener, {metrics['pending_senders']} waiting",
        f"relayed: {metrics['bytes_to_listeners']:,} bytes to listeners, {metrics['bytes_to_senders']:,} to senders",
        f"refused: {metrics['refused']}",
        *(f"  {path}  listeners: {count}" for path, count in status["hybrid_connections"].items()),
    ]
    return "\n".join(lines)
