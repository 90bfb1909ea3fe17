"""The places where a job asks for a token of its identity: Azure ML's MSI and OBO endpoints, and a VM's IMDS."""

import asyncio
import time
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.azure.entra import Issuer
from tests.support.machine import secrets


@dataclass
class FakeManagedIdentity:
    """All three on one port."""

    issuer: Issuer
    port: int = 0
    secret: str = field(default_factory=secrets.new_key, repr=False)
    known_client: str = ""
    """The only user-assigned identity; "" for a system-assigned one."""
    silent: bool = False
    status: int = 200
    """What is answered instead of a token, if it is not 200."""
    requests: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/msi/token", self._azure_ml)
        app.router.add_get("/metadata/identity/oauth2/token", self._imds)
        app.router.add_get("/obo", self._on_behalf_of)
        return app

    def azure_ml(self) -> dict[str, str]:
        """Return the environment of an Azure ML job on a cluster with an identity."""
        found = {"MSI_ENDPOINT": f"http://127.0.0.1:{self.port}/msi/token", "MSI_SECRET": self.secret}
        return {**found, **({"DEFAULT_IDENTITY_CLIENT_ID": self.known_client} if self.known_client else {})}

    def imds(self) -> dict[str, str]:
        """Return the environment of a machine whose metadata service is here."""
        return {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://127.0.0.1:{self.port}"}

    def on_behalf_of(self) -> dict[str, str]:
        """Return the environment of an Azure ML job that runs as the user who submitted it."""
        return {"OBO_ENDPOINT": f"http://127.0.0.1:{self.port}/obo"}

    async def _azure_ml(self, request: web.Request) -> web.Response:
        if request.headers.get("secret") != self.secret:
            return web.json_response({"error": "wrong secret"}, status=401)
        return await self._answer(request, request.query.get("clientid", ""))

    async def _imds(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true":
            return web.json_response({"error": "invalid_request"}, status=400)
        return await self._answer(request, request.query.get("client_id", ""))

    async def _on_behalf_of(self, request: web.Request) -> web.Response:
        return await self._answer(request, self.known_client)

    async def _answer(self, request: web.Request, client: str) -> web.Response:
        self.requests.append({"path": request.path, **request.query})
        if self.silent:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.json_response({"error": "trouble"}, status=self.status)
        if client != self.known_client:
            body = {"error": "invalid_request", "error_description": "Identity not found"}
            return web.json_response(body, status=400)
        resource = request.query["resource"]
        token = self.issuer.token(resource)
        expires_on = str(int(time.time() + self.issuer.lifetime))
        body = {"access_token": token, "expires_on": expires_on, "resource": resource, "token_type": "Bearer"}
        return web.json_response(body)
