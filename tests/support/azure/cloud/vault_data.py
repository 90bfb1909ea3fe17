"""NAME.vault.azure.net: the secrets of the vaults, behind the challenge that names the token to bring."""

from __future__ import annotations

from typing import Any

from tests.support.azure.cloud import vaults
from tests.support.azure.cloud.state import TENANT
from tests.support.azure.cloud.web import Reply, Request, Routes

CREATED = 1795248000
"""Seconds since 1970 of every version: 2026-11-21T08:00:00Z."""
VERSION = "0123456789abcdef0123456789abcdef"

vault_data = Routes()


def challenge(resource: str = "https://vault.azure.net") -> Reply:
    header = f'Bearer authorization="https://login.microsoftonline.com/{TENANT}", resource="{resource}"'
    message = "AKV10000: Request is missing a Bearer or PoP token."
    return Reply(401, {"error": {"code": "Unauthorized", "message": message}}, {"WWW-Authenticate": header})


def _facts(asked: Request, name: str, *, version: str = f"/{VERSION}") -> dict[str, Any]:
    attributes = {"enabled": True, "created": CREATED, "updated": CREATED, "recoverableDays": 90}
    return {
        "id": f"https://{asked.host}/secrets/{name}{version}",
        "attributes": {**attributes, "recoveryLevel": "Recoverable+Purgeable"},
    }


def _deleted(asked: Request, name: str) -> dict[str, Any]:
    return {
        "recoveryId": f"https://{asked.host}/deletedsecrets/{name}",
        "deletedDate": CREATED,
        "scheduledPurgeDate": CREATED + 90 * 86400,
        **_facts(asked, name),
    }


@vault_data("GET", "/secrets/{name}")
@vault_data("GET", "/secrets/{name}/")
def get(cloud: Any, asked: Request, name: str) -> Reply:
    return Reply(200, {"value": vaults.get_secret(cloud.state, _vault(asked), name), **_facts(asked, name)})


@vault_data("PUT", "/secrets/{name}")
def put(cloud: Any, asked: Request, name: str) -> Reply:
    given = asked.json
    vaults.set_secret(cloud.state, _vault(asked), name, given["value"])
    content = {"contentType": given["contentType"]} if given.get("contentType") else {}
    return Reply(200, {"value": given["value"], **content, **_facts(asked, name), "tags": given.get("tags") or {}})


@vault_data("DELETE", "/secrets/{name}")
def delete(cloud: Any, asked: Request, name: str) -> Reply:
    vaults.delete_secret(cloud.state, _vault(asked), name)
    return Reply(200, _deleted(asked, name))


@vault_data("GET", "/deletedsecrets/{name}")
def get_deleted(cloud: Any, asked: Request, name: str) -> Reply:
    vaults.check_deleted(cloud.state, _vault(asked), name)
    return Reply(200, _deleted(asked, name))


@vault_data("POST", "/deletedsecrets/{name}/recover")
def recover(cloud: Any, asked: Request, name: str) -> Reply:
    vaults.recover_secret(cloud.state, _vault(asked), name)
    return Reply(200, _facts(asked, name))


def _vault(asked: Request) -> str:
    return asked.host.partition(".")[0]
