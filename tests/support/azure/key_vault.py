"""A Key Vault as its SDK sees it: the challenge, tokens of the right audience and role, secrets and their errors.

Its answers follow the service's reference, https://learn.microsoft.com/rest/api/keyvault; error codes as documented.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.azure.cloud.state import Refusal, State, new_vault
from tests.support.azure.cloud.vault_data import challenge, vault_data
from tests.support.azure.cloud.web import Reply, Request, application, refused
from tests.support.azure.entra import SECRETS_USER, VAULT, Issuer


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
        return application(self._answer)

    @property
    def state(self) -> State:
        """What `vault_data` works on."""
        vault = new_vault("vault-rg") | {"deleted": dict.fromkeys(self.deleted)}
        vault["secrets"] = {name: [value] for name, value in self.secrets.items()}
        return {"vaults": {self.host.partition(".")[0]: vault}}

    async def _answer(self, asked: Request) -> Reply:
        self.requests.append((asked.path, bool(asked.token)))
        if self.silent:
            await asyncio.Event().wait()
        reply = self._refusal(asked.token) or vault_data.answer(self, asked)
        assert reply is not None, asked
        return reply

    def _refusal(self, token: str) -> Reply | None:
        """Return the challenge until there is a good token, then what is wrong besides."""
        if self.broken:
            return refused(Refusal(self.broken, "ServiceUnavailable", "try later"))
        claims = self.issuer.accepts(token, VAULT)
        if claims is None or self.refuse_tokens:
            return challenge(self.resource)
        if self.forbidden:
            return refused(Refusal(403, "Forbidden", "Client address is not authorized", self.forbidden))
        if SECRETS_USER not in claims["roles"]:
            return refused(Refusal(403, "Forbidden", "Caller is not authorized to perform action", "ForbiddenByRbac"))
        return None
