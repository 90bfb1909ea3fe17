"""A Key Vault as its SDK sees it: the challenge, tokens of the right audience and role, secrets and their errors.

Its answers follow the service's reference, https://learn.microsoft.com/rest/api/keyvault; error codes as documented.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.azure.entra import SECRETS_USER, TENANT, VAULT, Issuer


@dataclass
class FakeKeyVault:
    """One vault."""

    issuer: Issuer
    host: str
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    deleted: set[str] = field(default_factory=set)
    forbidden: str = ""
    """Error code of a 403 for everybody, such as ForbiddenByFirewall."""
    refuse_tokens: bool = False
    broken: int = 0
    """A status for everybody, such as 503."""
    silent: bool = False
    resource: str = VAULT
    """What the challenge names."""
    requests: list[tuple[str, bool]] = field(default_factory=list)
    """Path of each request, and whether it carried a token."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/secrets/{name}", self._secret)
        app.router.add_get("/secrets/{name}/{version:.*}", self._secret)
        app.router.add_get("/deletedsecrets/{name}", self._deleted)
        return app

    async def _secret(self, request: web.Request) -> web.Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        name = request.match_info["name"]
        if name not in self.secrets:
            message = (
                f"A secret with (name/id) {name} was not found in this key vault. If you recently deleted this secret "
                "you may be able to recover it using the correct recovery command."
            )
            return error(404, "SecretNotFound", message)
        return web.json_response({"value": self.secrets[name], **self._facts(name)})

    async def _deleted(self, request: web.Request) -> web.Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        name = request.match_info["name"]
        if name not in self.deleted:
            return error(404, "SecretNotFound", "Deleted Secret not found")
        recovery = f"https://{self.host}/deletedsecrets/{name}"
        return web.json_response({**self._facts(name), "recoveryId": recovery, "deletedDate": int(time.time())})

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Answer with the challenge until there is a good token, then with what is wrong besides."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        self.requests.append((request.path, bool(token)))
        if self.silent:
            await asyncio.Event().wait()
        if self.broken:
            return error(self.broken, "ServiceUnavailable", "try later")
        claims = self.issuer.accepts(token, VAULT) if scheme == "Bearer" else None
        if claims is None or self.refuse_tokens:
            challenge = f'Bearer authorization="https://login.microsoftonline.com/{TENANT}", resource="{self.resource}"'
            response = error(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
            response.headers["WWW-Authenticate"] = challenge
            return response
        if self.forbidden:
            return error(403, "Forbidden", "Client address is not authorized", inner=self.forbidden)
        if SECRETS_USER not in claims["roles"]:
            return error(403, "Forbidden", "Caller is not authorized to perform action", inner="ForbiddenByRbac")
        return None

    def _facts(self, name: str) -> dict[str, Any]:
        return {
            "id": f"https://{self.host}/secrets/{name}/0123456789abcdef0123456789abcdef",
            "attributes": {"enabled": True, "created": 1, "updated": 1, "recoveryLevel": "Recoverable+Purgeable"},
        }


def error(status: int, code: str, message: str, *, inner: str = "") -> web.Response:
    body: dict[str, Any] = {"code": code, "message": message}
    if inner:
        body["innererror"] = {"code": inner}
    return web.json_response({"error": body}, status=status)
