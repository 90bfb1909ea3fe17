"""A real relay on loopback for tests, with fresh keys, and the credentials to use it."""

import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.hyco.address import Endpoint
from relay_core.net.relay_tls import client_tls
from relay_server.config.model import HybridConnection, Limits, RelayConfig, Right, Rule, TlsSettings
from relay_server.server import RelayServer
from tests.support.machine import secrets

HC = "myhc"


@dataclasses.dataclass
class LocalRelay:
    """A running relay and what its clients need."""

    server: RelayServer
    tls: ssl.SSLContext
    ca_file: Path
    listen_key: str
    send_key: str
    size: int = 1
    """Number of hybrid connections in the family that `endpoint` names."""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("localhost", self.server.port, HC, self.size)

    @property
    def listener(self) -> SasKeyCredential:
        return SasKeyCredential("listen", self.listen_key)

    @property
    def sender(self) -> SasKeyCredential:
        return SasKeyCredential("send", self.send_key)

    def connection_string(self, rule: str, *, hc: str | None = HC) -> str:
        """Return the connection string of rule `listen` or `send`."""
        key = {"listen": self.listen_key, "send": self.send_key}[rule]
        entity = f";EntityPath={hc}" if hc else ""
        return f"Endpoint=sb://localhost:{self.server.port};SharedAccessKeyName={rule};SharedAccessKey={key}{entity}"

    def connection_file(self, directory: Path, rule: str) -> Path:
        """Write the connection string of a rule to a file as users keep it."""
        path = directory / f"{rule}.connection"
        path.touch(mode=0o600)
        path.write_text(self.connection_string(rule))
        return path


def recycle_listeners(server: RelayServer) -> None:
    """Close every control channel with 1011, as Azure does every 24 hours; relayed connections stay open."""
    for control in server._gateway.matchmaker.registry.listeners:
        control.recycle()


@contextlib.asynccontextmanager
async def local_relay(
    tls_directory: Path,
    *,
    hybrid_connections: tuple[str, ...] = (HC,),
    size: int = 1,
    limits: Limits | None = None,
    make: Callable[[RelayConfig], RelayServer] = RelayServer,
    **fields: Any,
) -> AsyncIterator[LocalRelay]:
    """Run a relay on a free port, with a family of `size` hybrid connections; `fields` are those of RelayConfig."""
    hybrid_connections += tuple(f"{HC}-{number}" for number in range(1, size))
    listen_key, send_key = secrets.new_key(), secrets.new_key()
    config = RelayConfig(
        tls=TlsSettings(directory=tls_directory),
        hybrid_connections=tuple(HybridConnection(path) for path in hybrid_connections),
        rules=(
            Rule("listen", frozenset({Right.LISTEN}), listen_key),
            Rule("send", frozenset({Right.SEND}), send_key),
        ),
        limits=limits or Limits(),
        **fields,
    )
    async with make(config) as server:
        assert server.ca_file is not None
        yield LocalRelay(server, client_tls(str(server.ca_file)), server.ca_file, listen_key, send_key, size)
