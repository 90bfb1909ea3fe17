"""Azure on this machine under its real names: a proxy leads them to a relay-server, a Key Vault and an Entra ID.

Programs find it through HTTPS_PROXY and RELAY_CA_FILE, so that they run exactly as they would against Azure: names,
certificates, the vault's challenge and its check by the SDK included.
"""

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from relay_core.hyco.address import Endpoint
from relay_core.net.relay_tls import client_tls
from relay_core.net.tasks import TaskSet
from relay_server.config import certificates as server_tls
from relay_server.config.model import HybridConnection, RelayConfig, Right, Rule, TlsSettings
from relay_server.server import RelayServer
from tests.support.azure.entra import FakeEntra, Issuer
from tests.support.azure.key_vault import FakeKeyVault
from tests.support.machine import secrets
from tests.support.machine.streams import pump

HC = "myhc"
NAMESPACE = "contoso.servicebus.windows.net"
VAULT_HOST = "contoso-kv.vault.azure.net"
ENTRA_HOST = "login.microsoftonline.com"
_LEADS_ELSEWHERE = re.compile(
    r"(AZURE|RELAY|AZRELAY|MSI|IDENTITY|IMDS|OBO)_.*|DEFAULT_IDENTITY_CLIENT_ID|KEY_VAULT_URL|(https?|all|no)_proxy",
    re.IGNORECASE,
)
"""Variables that would lead our programs, the SDK, or the way there, somewhere else."""


def clean_environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Take away what a developer's machine may have configured, and set `variables`; children inherit both."""
    for name in [name for name in os.environ if _LEADS_ELSEWHERE.fullmatch(name)]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


class ConnectProxy:
    """An HTTP proxy that knows a few names, and never answers for those in `swallowed`."""

    def __init__(self, routes: Mapping[str, int]) -> None:
        self.routes = dict(routes)
        self.swallowed: set[str] = set()
        """Names that never answer."""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host = head.split()[1].decode().rpartition(":")[0]
        if host in self.swallowed:
            await reader.read()
            return
        if host not in self.routes:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        to, back = await asyncio.open_connection("127.0.0.1", self.routes[host])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            async with TaskSet() as tasks:
                pumps = {tasks.spawn(pump(reader, back), name="up"), tasks.spawn(pump(to, writer), name="down")}
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.close()


@dataclass
class Azure:
    """What runs, and how programs find it."""

    relay: RelayServer
    vault: FakeKeyVault
    entra: FakeEntra
    issuer: Issuer
    proxy: ConnectProxy
    tls: ssl.SSLContext
    ca_file: Path
    keys: dict[str, str] = field(repr=False)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(NAMESPACE, 443, HC)

    def connection_string(self, rule: str) -> str:
        """Return the connection string of rule `listen` or `send`, as the portal shows it."""
        return (
            f"Endpoint=sb://{NAMESPACE}/;SharedAccessKeyName={rule};SharedAccessKey={self.keys[rule]};EntityPath={HC}"
        )

    @property
    def environment(self) -> dict[str, str]:
        """What leads programs here."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self.proxy.port}", "RELAY_CA_FILE": str(self.ca_file)}


@contextlib.asynccontextmanager
async def azure(
    directory: Path,
    *,
    namespace: str = NAMESPACE,
    hybrid_connections: tuple[HybridConnection, ...] = (HybridConnection(HC),),
    **of_relay: Any,
) -> AsyncIterator[Azure]:
    """Run everything; certificates are made once in `directory`, and `of_relay` replaces fields of RelayConfig."""
    settings = TlsSettings(directory=directory)
    names = (namespace, VAULT_HOST, ENTRA_HOST)
    certificates = server_tls.prepare(settings, names)
    issuer = Issuer()
    keys = {"listen": secrets.new_key(), "send": secrets.new_key()}
    fields: dict[str, Any] = {
        "public_address": f"{namespace}:443",
        "rules": tuple(Rule(name, frozenset({Right(name.capitalize())}), key, None) for name, key in keys.items()),
        "jwt_issuers": (issuer.settings(directory),),
        **of_relay,
    }
    config = RelayConfig(tls=settings, namespace=namespace, hybrid_connections=hybrid_connections, **fields)
    context = server_tls.server_context(certificates)
    vault, entra = FakeKeyVault(issuer, VAULT_HOST), FakeEntra(issuer)
    async with (
        RelayServer(config) as relay,
        web_server(vault.app(), context) as vault_port,
        web_server(entra.app(), context) as entra_port,
        proxy({namespace: relay.port, VAULT_HOST: vault_port, ENTRA_HOST: entra_port}) as running,
    ):
        assert certificates.ca is not None
        yield Azure(relay, vault, entra, issuer, running, client_tls(str(certificates.ca)), certificates.ca, keys)


@contextlib.asynccontextmanager
async def web_server(app: web.Application, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve an application on a free port of 127.0.0.1, and yield the port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def proxy(routes: Mapping[str, int]) -> AsyncIterator[ConnectProxy]:
    """Run a proxy on a free port."""
    running = ConnectProxy(routes)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await running.serve(reader, writer)
        finally:
            writer.close()

    async with TaskSet() as tasks:
        server = await asyncio.start_server(
            lambda reader, writer: tasks.spawn(serve(reader, writer), name="proxy") and None, "127.0.0.1", 0
        )
        try:
            running.port = server.sockets[0].getsockname()[1]
            yield running
        finally:
            server.close()
