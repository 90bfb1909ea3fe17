"""The border to azure-identity and azure-core: nothing is imported from there before a token is wanted.

Only asynchronous classes are used, because a deadline can cancel them. A credential object lives for one request: its
cache would give a refused token again, and nobody would close its connections.
"""

from __future__ import annotations

import asyncio
import enum
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from relay_core.auth.identity import Identity, managed_client_id

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.transport import AioHttpTransport

__all__ = ["Failure", "IdentityFailed", "IssuedToken", "acquire", "brief", "open_transport"]

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
METADATA_CONNECT_TIMEOUT = 1.0
"""A metadata address is on the same host or rack: it answers at once, or there is none."""
PROGRAM_MARGIN = 0.5
"""Seconds before the deadline at which a program such as `az` is killed, so that it does not outlive us."""
_MAX_REASON_CHARS = 200
_ADVICE = re.compile(r"\s*(?:To mitigate this issue|Visit https://|For more information|Trace ID:|Please run).*", re.DOTALL)


@dataclass(frozen=True)
class IssuedToken:
    """A token as Entra ID gave it; `repr()` hides it."""

    value: str = field(repr=False)
    expires_on: float
    """Unix seconds, as the issuer says."""


class Failure(enum.Enum):
    """Why an identity gave no token."""

    ABSENT = "absent"
    """It does not exist here."""
    REFUSED = "refused"
    """Entra ID, or who stands for it here, said no."""
    SILENT = "silent"
    """Nobody answered; later somebody may."""


class IdentityFailed(Exception):
    """An identity gave no token.

    Args:
        failure: What kind of trouble.
        reason: A few words, without secrets.
    """

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure
        self.reason = reason


def open_transport(tls: ssl.SSLContext | None, *, direct: bool = False) -> AioHttpTransport:
    """Return an HTTP transport for one client of the SDK, which closes it; needs a running loop.

    Args:
        tls: Decides about trust; None for the system's authorities.
        direct: Use no proxy: metadata addresses mean something on this machine only.
    """
    import aiohttp  # noqa: PLC0415 - only when Azure is really asked
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls if tls is not None else ssl.create_default_context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=not direct,
    )
    return AioHttpTransport(session=session)


async def acquire(
    identity: Identity,
    scope: str,
    *,
    within: float,
    environ: Mapping[str, str],
    tls: ssl.SSLContext | None = None,
    options: Mapping[str, Any] | None = None,
) -> IssuedToken:
    """Ask one identity for a token.

    Args:
        identity: Whose.
        scope: What for, as in `https://relay.azure.net/.default`.
        within: Seconds.
        environ: For the identity's settings.
        tls: Decides about trust.
        options: Keywords of `get_token`, as Key Vault's challenge wants them.

    Raises:
        IdentityFailed: there is no token.
    """
    if reason := identity.absent(environ):
        raise IdentityFailed(Failure.ABSENT, reason)
    started = time.monotonic()
    try:
        return await asyncio.wait_for(_ask(identity, scope, within, environ, tls, options or {}), within)
    except asyncio.TimeoutError:
        raise IdentityFailed(Failure.SILENT, f"no answer within {time.monotonic() - started:.0f} s") from None


async def _ask(
    identity: Identity,
    scope: str,
    within: float,
    environ: Mapping[str, str],
    tls: ssl.SSLContext | None,
    options: Mapping[str, Any],
) -> IssuedToken:
    from azure.core.exceptions import (  # noqa: PLC0415
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from azure.identity import CredentialUnavailableError  # noqa: PLC0415

    try:
        async with _open(identity, within, environ, tls) as credential:
            token: AccessToken = await credential.get_token(scope, **options)
            return IssuedToken(token.token, float(token.expires_on))
    except CredentialUnavailableError as error:
        silent = str(error.message).startswith("Timed out")
        raise IdentityFailed(Failure.SILENT if silent else Failure.ABSENT, brief(error.message)) from None
    except ClientAuthenticationError as error:
        raise IdentityFailed(Failure.REFUSED, brief(error.message)) from None
    except HttpResponseError as error:
        busy = (error.status_code or 0) >= 500 or error.status_code in {408, 429}
        raise IdentityFailed(Failure.SILENT if busy else Failure.REFUSED, brief(error.message)) from None
    except (ServiceRequestError, ServiceResponseError, OSError) as error:
        raise IdentityFailed(Failure.SILENT, brief(str(error))) from None
    except (ValueError, KeyError, TypeError) as error:
        # A malformed tenant id, an answer that is no token: the SDK's checks raise these.
        raise IdentityFailed(Failure.REFUSED, brief(str(error))) from None


def _open(
    identity: Identity, within: float, environ: Mapping[str, str], tls: ssl.SSLContext | None
) -> AbstractAsyncContextManager[Any]:
    """Return the credential of an identity; entering it opens its connections, and leaving closes them."""
    from azure.identity import aio  # noqa: PLC0415

    from relay_core.auth.on_behalf_of import OnBehalfOfCredential  # noqa: PLC0415

    remote = {"retry_total": 2, "connection_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT}
    local = {**remote, "retry_connect": 0, "connection_timeout": METADATA_CONNECT_TIMEOUT}
    patience = max(1, int(within - PROGRAM_MARGIN))
    openers: dict[str, Callable[[], object]] = {
        "environment": lambda: aio.EnvironmentCredential(transport=open_transport(tls), **remote),
        "workload": lambda: aio.WorkloadIdentityCredential(transport=open_transport(tls), **remote),
        "on-behalf-of": lambda: OnBehalfOfCredential(environ["OBO_ENDPOINT"]),
        "managed": lambda: aio.ManagedIdentityCredential(
            client_id=managed_client_id(environ), transport=open_transport(tls, direct=True), **local
        ),
        "azure-cli": lambda: aio.AzureCliCredential(process_timeout=patience),
        "azd": lambda: aio.AzureDeveloperCliCredential(process_timeout=patience),
        "powershell": lambda: aio.AzurePowerShellCredential(process_timeout=patience),
    }
    return cast("AbstractAsyncContextManager[Any]", openers[identity.name]())


def brief(text: str | None) -> str:
    """Return the gist of an SDK's message: one line, without its class names, links and trace ids."""
    gist = " ".join(_ADVICE.sub("", text or "").split())
    gist = re.sub(r"^\w+Credential authentication (?:unavailable|failed)[.,:]?\s*", "", gist)
    return gist[:_MAX_REASON_CHARS].rstrip(" .:,") or "no reason given"
