"""A token issuer that relay-server can trust, and the part of Entra ID that service principals talk to."""

import base64
import functools
import json
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from relay_server.config.model import JwtIssuer
from tests.support.azure.cloud.state import TENANT
from tests.support.machine import secrets

RELAY = "https://relay.azure.net"
VAULT = "https://vault.azure.net"
LISTENER, SENDER = "Azure Relay Listener", "Azure Relay Sender"
SECRETS_USER = "Key Vault Secrets User"


@functools.cache
def signing_key() -> rsa.RSAPrivateKey:
    """Return the key of this test run: making one takes a moment."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def keep_secret(token: str) -> str:
    """Have every output scanned for a token, and for what a shortened form of it would show."""
    _, claims, signature = token.split(".")
    secrets._keys.update({token, claims[:60], signature[:40]})
    return token


@dataclass
class Issuer:
    """Signs JWTs and remembers what they say."""

    name: str = f"https://sts.windows.net/{TENANT}/"
    roles: dict[str, list[str]] = field(default_factory=lambda: {RELAY: [LISTENER], VAULT: [SECRETS_USER]})
    """What the next tokens for a resource allow."""
    lifetime: float = 3600.0
    issued: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    def token(self, resource: str = RELAY, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token; None removes a claim."""
        now = int(time.time())
        payload = {
            "iss": self.name,
            "aud": resource,
            "iat": now,
            "nbf": now,
            "exp": int(now + self.lifetime),
            "roles": self.roles.get(resource, []),
            "oid": "an-object-id",
            "jti": str(uuid.uuid4()),
            **claims,
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        text = sign(header or {"alg": "RS256", "typ": "JWT"}, payload)
        self.issued[text] = payload
        return keep_secret(text)

    def printed(self, resource: str, **claims: Any) -> dict[str, Any]:
        """Return what `az account get-access-token` prints for a new token."""
        expires_on = int(time.time() + self.lifetime)
        return {
            "accessToken": self.token(resource, **claims),
            "expiresOn": time.strftime("%Y-%m-%d %H:%M:%S.000000", time.localtime(expires_on)),
            "expires_on": expires_on,
            "tokenType": "Bearer",
        }

    def accepts(self, token: str, resource: str) -> dict[str, Any] | None:
        """Return the claims of a token that was issued here for `resource` and lives."""
        claims = self.issued.get(token)
        return claims if claims and claims["aud"] == resource and claims["exp"] > time.time() else None

    def settings(self, directory: Path) -> JwtIssuer:
        """Return what relay-server needs to trust this issuer."""
        return JwtIssuer(self.name, write_public_key(directory))


def sign(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Return a JWT with any content and a good signature."""
    signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
    signature = signing_key().sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_encode(signature)}"


def write_public_key(directory: Path) -> Path:
    path = directory / "issuer.pem"
    path.write_bytes(
        signing_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return path


@dataclass
class FakeEntra:
    """`POST /<tenant>/oauth2/v2.0/token` for client secrets and client assertions."""

    issuer: Issuer
    client_id: str = "22222222-2222-2222-2222-222222222222"
    client_secret: str = field(default_factory=secrets.new_key, repr=False)
    assertion: str = field(default_factory=secrets.new_key, repr=False)
    """What a Kubernetes service account file holds."""
    requests: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/{tenant}/oauth2/v2.0/token", self._token)
        return app

    def principal(self) -> dict[str, str]:
        """Return the environment of a service principal."""
        return {
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": self.client_id,
            "AZURE_CLIENT_SECRET": self.client_secret,
        }

    def workload(self, directory: Path) -> dict[str, str]:
        """Return the environment of a pod with a workload identity."""
        path = directory / "federated-token"
        path.write_text(self.assertion)
        return {
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": self.client_id,
            "AZURE_FEDERATED_TOKEN_FILE": str(path),
        }

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append({**form, "tenant": request.match_info["tenant"]})
        good = form.get("client_secret") == self.client_secret or form.get("client_assertion") == self.assertion
        if form.get("client_id") != self.client_id or not good:
            text = "AADSTS7000215: Invalid client secret provided. Ensure it is the value. Trace ID: 0 Timestamp: now"
            return web.json_response({"error": "invalid_client", "error_description": text}, status=401)
        token = self.issuer.token(form["scope"].removesuffix("/.default"))
        return web.json_response({"token_type": "Bearer", "expires_in": 3600, "access_token": token})


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
