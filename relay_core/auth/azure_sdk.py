"""The border to azure-identity and azure-core: nothing is imported from there before a token is wanted.

Whatever talks to a network is asynchronous, because a deadline can cancel it; programs such as `az` are run by the
SDK's blocking classes in a thread, because its asynchronous ones leave them behind. A credential object lives for one
request: its cache would give a refused token again, and nobody would close its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relay_core.auth.identity import Identity, managed_client_id
from relay_core.compat import TIMEOUT_ERRORS, timeout

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential
    from azure.core.pipeline.transport import AioHttpTransport

__all__ = ["Failure", "IdentityFailed", "IssuedToken", "acquire", "brief", "open_transport"]

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
METADATA_CONNECT_TIMEOUT = 1.0
"""A metadata address is on the same host or rack: it answers at once, or there is none."""
PROGRAM_MARGIN = 0.5
"""Seconds before the deadline at which a program such as `az` is killed, so that it does not outlive us."""
_MAX_REASON_CHARS = 200
_ADVICE = re.compile(
    r"\s*(?:To mitigate this issue|Visit https://|For more information|Trace ID:|Please run).*", re.DOTALL
)


for _name in ("azure", "msal"):
    # Without a handler of its own Python would write the SDK's warnings to stderr, beside our one sentence.
    logging.getLogger(_name).addHandler(logging.NullHandler())


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
    patience = METADATA_CONNECT_TIMEOUT if direct else CONNECT_TIMEOUT
    return AioHttpTransport(session=session, connection_timeout=patience, read_timeout=READ_TIMEOUT)


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
    asking = _ask(identity, scope, ends_at=started + within, environ=environ, tls=tls, options=options or {})
    try:
        async with timeout(within):
            return await asking
    except TIMEOUT_ERRORS:
        raise IdentityFailed(Failure.SILENT, f"no answer within {time.monotonic() - started:.0f} s") from None


async def _ask(
    identity: Identity,
    scope: str,
    *,
    ends_at: float,
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
        async with _open(identity, ends_at, environ, tls) as credential:
            token: AccessToken = await credential.get_token(scope, **options)
            return IssuedToken(token.token, float(token.expires_on))
    except CredentialUnavailableError as error:
        if isinstance(error.__cause__, subprocess.TimeoutExpired):
            raise IdentityFailed(Failure.SILENT, f"no answer within {error.__cause__.timeout:.0f} s") from None
        raise IdentityFailed(Failure.ABSENT, brief(error.message)) from None
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


@contextlib.asynccontextmanager
async def _open(
    identity: Identity, ends_at: float, environ: Mapping[str, str], tls: ssl.SSLContext | None
) -> AsyncIterator[Any]:
    """Make the credential of an identity; its connections are closed at the end of the block."""
    import azure.identity as blocking  # noqa: PLC0415
    from azure.identity import aio  # noqa: PLC0415

    from relay_core.auth.on_behalf_of import OnBehalfOfCredential  # noqa: PLC0415

    remote: dict[str, Any] = {"retry_total": 2}
    local: dict[str, Any] = {"retry_total": 2, "retry_connect": 0}
    patience = max(1, int(ends_at - PROGRAM_MARGIN - time.monotonic()))  # the imports above took their time
    async with contextlib.AsyncExitStack() as stack:
        transport = None
        if not identity.program:
            # Held here as well, because the constructors below may raise.
            transport = await stack.enter_async_context(open_transport(tls, direct=identity.name == "managed"))
        openers: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
            "environment": lambda: aio.EnvironmentCredential(transport=transport, **remote),
            "workload": lambda: aio.WorkloadIdentityCredential(transport=transport, **remote),
            "on-behalf-of": lambda: OnBehalfOfCredential(environ["OBO_ENDPOINT"]),
            "managed": lambda: aio.ManagedIdentityCredential(
                client_id=managed_client_id(environ), transport=transport, **local
            ),
            "azure-cli": lambda: _InThread(blocking.AzureCliCredential(process_timeout=patience)),
            "azd": lambda: _InThread(blocking.AzureDeveloperCliCredential(process_timeout=patience)),
            "powershell": lambda: _InThread(blocking.AzurePowerShellCredential(process_timeout=patience)),
        }
        yield await stack.enter_async_context(openers[identity.name]())


class _InThread:
    """A blocking credential as an asynchronous one; its own timeout ends the thread."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    async def __aenter__(self) -> _InThread:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None

    async def get_token(self, scope: str, **options: Any) -> AccessToken:
        return await asyncio.to_thread(self._credential.get_token, scope, **options)


def brief(text: str | None) -> str:
    """Return the gist of an SDK's message: one line, without its class names, links and trace ids."""
    gist = " ".join(_ADVICE.sub("", text or "").split())
    gist = re.sub(r"^\w+Credential authentication (?:unavailable|failed)[.,:]?\s*", "", gist)
    return gist[:_MAX_REASON_CHARS].rstrip(" .:,") or "no reason given"
