"""Adapter for azure-identity and azure-core, which are imported only when a token is needed.

Credentials that use the network are asynchronous, so that a deadline can cancel them. Programs such as `az` are run by
the SDK's blocking classes in a thread, because the asynchronous classes leave the program running when they are
cancelled. A credential object is used for one request only, because its cache could return a refused token and its
connections would stay open.

Why the imports are inside functions: `azure.identity` and its asynchronous half take 0.3 to 0.4 s, and more than 2 s on
a busy machine, which every command with a connection string would wait for without using them.

What is ugly: the kinds of failure are derived from the SDK's exceptions and, for a program that timed out, from the
cause of one. Nothing in its interface distinguishes "not available here" from "no answer", and the two need opposite
treatment: the first is normal for most identities of a list, the second is worth a retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from relay_core.auth.identity import Identity, managed_client_id
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.hyco.sas import Token

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential
    from azure.core.pipeline.transport import AioHttpTransport

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
METADATA_CONNECT_TIMEOUT = 1.0
"""Time limit in seconds for connecting to a metadata endpoint, which is on the same host or rack and answers at once if
it exists."""
PROGRAM_MARGIN = 0.5
"""How many seconds before the deadline a program such as `az` is killed, so that it does not outlive this process."""
_MAX_REASON_CHARS = 200
_ADVICE = re.compile(
    r"\s*(?:To mitigate this issue|Visit https://|For more information|Trace ID:|Please run).*", re.DOTALL
)


for _name in ("azure", "msal"):
    # Without a handler, Python would write the SDK's warnings to stderr, in addition to the message of this program.
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Failure(enum.Enum):
    """Kind of failure to get a token from an identity."""

    ABSENT = "absent"
    """The identity is not available in this environment."""
    REFUSED = "refused"
    """Entra ID or a local token endpoint refused the request."""
    NO_ANSWER = "no answer"
    """The request failed or timed out; a later attempt may succeed."""


class IdentityFailed(Exception):
    """An identity did not provide a token.

    Args:
        failure: Kind of failure.
        reason: A short text without secrets.
    """

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


def open_transport(tls: ssl.SSLContext | None, *, direct: bool = False) -> AioHttpTransport:
    """Return an HTTP transport for one SDK client, which closes it. Requires a running event loop.

    Args:
        tls: TLS context; None for the system's certificate authorities.
        direct: Do not use a proxy; for metadata endpoints, which are local to this machine.
    """
    import aiohttp  # noqa: PLC0415 - only if a request is made
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls if tls is not None else ssl.create_default_context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=not direct,
    )
    connect_timeout = METADATA_CONNECT_TIMEOUT if direct else CONNECT_TIMEOUT
    return AioHttpTransport(session=session, connection_timeout=connect_timeout, read_timeout=READ_TIMEOUT)


async def acquire(
    identity: Identity, scope: str, *, within: float, tls: ssl.SSLContext | None, **options: Any
) -> Token:
    """Request a token from one identity.

    Args:
        identity: The identity to use; its settings are in the environment of this process, which the SDK reads too.
        scope: OAuth scope, such as `https://relay.azure.net/.default`.
        within: Seconds until the request is cancelled.
        tls: TLS context; None for the system's certificate authorities.
        options: Further arguments of `get_token`, such as the tenant from Key Vault's challenge.

    Raises:
        IdentityFailed: The identity provided no token.
    """
    if reason := identity.unavailable_reason(os.environ):
        raise IdentityFailed(Failure.ABSENT, reason)
    started = time.monotonic()
    from azure.core.exceptions import (  # noqa: PLC0415
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from azure.identity import CredentialUnavailableError  # noqa: PLC0415

    ends_at = started + within
    try:
        async with timeout(ends_at - time.monotonic()), _open(identity, ends_at, tls) as credential:
            token: AccessToken = await credential.get_token(scope, **options)
            return Token(token.token, float(token.expires_on))
    except TIMEOUT_ERRORS:
        raise IdentityFailed(Failure.NO_ANSWER, f"no answer within {time.monotonic() - started:.0f} s") from None
    except CredentialUnavailableError as error:
        if isinstance(error.__cause__, subprocess.TimeoutExpired):
            raise IdentityFailed(Failure.NO_ANSWER, f"no answer within {error.__cause__.timeout:.0f} s") from None
        raise IdentityFailed(Failure.ABSENT, brief(error.message)) from None
    except ClientAuthenticationError as error:
        raise IdentityFailed(Failure.REFUSED, brief(error.message)) from None
    except HttpResponseError as error:
        busy = (error.status_code or 0) >= 500 or error.status_code in {408, 429}
        raise IdentityFailed(Failure.NO_ANSWER if busy else Failure.REFUSED, brief(error.message)) from None
    except (ServiceRequestError, ServiceResponseError, OSError) as error:
        raise IdentityFailed(Failure.NO_ANSWER, brief(str(error))) from None
    except (ValueError, KeyError, TypeError) as error:
        # Raised by checks of the SDK, for example for a malformed tenant id or token response.
        raise IdentityFailed(Failure.REFUSED, brief(str(error))) from None


@contextlib.asynccontextmanager
async def _open(identity: Identity, ends_at: float, tls: ssl.SSLContext | None) -> AsyncIterator[Any]:
    """Create the SDK's credential for an identity; leaving the block closes its connections."""
    import azure.identity as blocking  # noqa: PLC0415
    from azure.identity import aio  # noqa: PLC0415

    from relay_core.auth.on_behalf_of import OnBehalfOfCredential  # noqa: PLC0415

    remote: dict[str, Any] = {"retry_total": 2}
    local: dict[str, Any] = {"retry_total": 2, "retry_connect": 0}
    # Computed here, because the imports above can take a second; the SDK takes whole seconds only.
    seconds = max(1, int(ends_at - PROGRAM_MARGIN - time.monotonic()))
    async with contextlib.AsyncExitStack() as stack:
        transport = None
        if not identity.program:
            # Closed by this stack as well, because the constructors below may raise.
            transport = await stack.enter_async_context(open_transport(tls, direct=identity.name == "managed"))
        openers: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
            "environment": lambda: aio.EnvironmentCredential(transport=transport, **remote),
            "workload": lambda: aio.WorkloadIdentityCredential(transport=transport, **remote),
            "on-behalf-of": lambda: nullcontext(OnBehalfOfCredential(os.environ["OBO_ENDPOINT"])),
            "managed": lambda: aio.ManagedIdentityCredential(
                client_id=managed_client_id(os.environ), transport=transport, **local
            ),
            "azure-cli": lambda: nullcontext(_InThread(blocking.AzureCliCredential(process_timeout=seconds))),
            "azd": lambda: nullcontext(_InThread(blocking.AzureDeveloperCliCredential(process_timeout=seconds))),
            "powershell": lambda: nullcontext(_InThread(blocking.AzurePowerShellCredential(process_timeout=seconds))),
        }
        yield await stack.enter_async_context(openers[identity.name]())


class _InThread:
    """Asynchronous wrapper for a blocking credential, which runs in a thread until its own timeout at the latest."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    async def get_token(self, scope: str, **options: Any) -> AccessToken:
        return await asyncio.to_thread(self._credential.get_token, scope, **options)


def brief(text: str | None) -> str:
    """Return an SDK error message shortened to one line, without class names, links and trace ids."""
    gist = " ".join(_ADVICE.sub("", text or "").split())
    gist = re.sub(r"^\w+Credential authentication (?:unavailable|failed)[.,:]?\s*", "", gist)
    return gist[:_MAX_REASON_CHARS].rstrip(" .:,") or "no reason given"
