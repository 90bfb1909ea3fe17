"""login.microsoftonline.com as `az login` uses it: discovery, device code, refresh tokens."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from tests.support.azure.cloud.state import TENANT, USER_NAME
from tests.support.azure.cloud.web import Reply, Request, Routes
from tests.support.azure.entra import sign

HOST = "login.microsoftonline.com"
LIFETIME = 3600
REFRESH_TOKEN = "0.refresh-token-of-the-tests"
DEVICE_CODE = "device-code-of-the-tests:"
"""Followed by the scopes that were asked for; who has it has been to the page and entered the user code."""

sign_in = Routes()


@sign_in("GET", "/{tenant}/discovery/instance")
@sign_in("GET", "/common/discovery/instance")
def discovery(cloud: Any, asked: Request, **_: str) -> Reply:
    names = {"preferred_network": HOST, "preferred_cache": "login.windows.net", "aliases": [HOST, "login.windows.net"]}
    endpoint = f"https://{HOST}/{TENANT}/v2.0/.well-known/openid-configuration"
    return Reply(200, {"tenant_discovery_endpoint": endpoint, "api-version": "1.1", "metadata": [names]})


@sign_in("GET", "/{tenant}/v2.0/.well-known/openid-configuration")
def configuration(cloud: Any, asked: Request, tenant: str) -> Reply:
    base = f"https://{HOST}/{tenant}"
    return Reply(
        200,
        {
            "issuer": f"https://{HOST}/{{tenantid}}/v2.0" if tenant == "organizations" else f"{base}/v2.0",
            "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
            "token_endpoint": f"{base}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
        },
    )


@sign_in("POST", "/{tenant}/oauth2/v2.0/devicecode")
def device_code(cloud: Any, asked: Request, tenant: str) -> Reply:
    page = "https://login.microsoft.com/device"
    return Reply(
        200,
        {
            "user_code": "ABCD1234",
            "device_code": DEVICE_CODE + asked.form["scope"],
            "verification_uri": page,
            "expires_in": 900,
            "interval": 1,
            "message": f"To sign in, use a web browser to open the page {page} and enter the code ABCD1234 to "
            "authenticate.",
        },
    )


@sign_in("POST", "/{tenant}/oauth2/v2.0/token")
def token(cloud: Any, asked: Request, tenant: str) -> Reply:
    """Issue tokens to whoever has a device code or the refresh token."""
    form = asked.form
    kind = form.get("grant_type", "")
    scope = form.get("scope", "")
    if kind.endswith("device_code"):
        scope = form["device_code"].removeprefix(DEVICE_CODE)
        cloud.state["signed_in"] = True
    elif kind != "refresh_token" or form.get("refresh_token") != REFRESH_TOKEN or not cloud.state["signed_in"]:
        return _refused("AADSTS700082: The refresh token has expired due to inactivity.")
    (resource,) = [each.removesuffix("/.default") for each in scope.split() if each.startswith("https://")]
    return Reply(200, _tokens(form["client_id"], resource, cloud.token(resource), scope))


def _refused(description: str) -> Reply:
    return Reply(400, {"error": "invalid_grant", "error_description": description, "error_codes": [700082]})


def _tokens(client: str, resource: str, access_token: str, scope: str) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "aud": client,
        "iss": f"https://{HOST}/{TENANT}/v2.0",
        "iat": now,
        "nbf": now,
        "exp": now + LIFETIME,
        "oid": "66666666-7777-8888-9999-000000000000",
        "sub": "subject-of-the-tests",
        "tid": TENANT,
        "preferred_username": USER_NAME,
        "ver": "2.0",
    }
    who = {"uid": claims["oid"], "utid": TENANT}
    return {
        "token_type": "Bearer",
        "scope": scope,
        "expires_in": LIFETIME,
        "ext_expires_in": LIFETIME,
        "access_token": access_token,
        "refresh_token": REFRESH_TOKEN,
        "id_token": sign({"alg": "RS256", "typ": "JWT"}, claims),
        "client_info": base64.urlsafe_b64encode(json.dumps(who).encode()).rstrip(b"=").decode(),
    }
