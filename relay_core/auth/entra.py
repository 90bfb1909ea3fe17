"""Entra ID tokens for the relay: identities to try, reuse of tokens, and errors.

Why not `DefaultAzureCredential`: it has time limits for single programs and requests, but none for the whole chain, and
one order for all programs. On a laptop, it asks for a managed identity before it asks `az`; in a job, it may use a
login that the image contains. Here, each side has its own identities, one deadline is shared by all of them, and the
error names what each of them answered, a refusal first, since that identity was most likely the intended one.

Why the last token is used after a failure: a token is valid for an hour or more and the relay checks it only when a
connection is made or renewed. An outage of Entra ID, or an expired login of a developer, must not end a debug session
that still has a valid token.

Invariant: one request at a time (`_request_lock`), so that 25 tunnels that reconnect together start `az` once. A client
then reuses the token for `CLIENT_REUSE` seconds; `refused` ends that, so that the attempt after a refusal has a new
token.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from relay_core.auth.azure_sdk import Failure, IdentityFailed, acquire
from relay_core.auth.identity import Identity, refused_hint
from relay_core.errors import ConfigurationError, RelayDebugError, RelayUnreachable, Unauthorized
from relay_core.hyco.address import Endpoint
from relay_core.hyco.backoff import ROLE_PROPAGATION
from relay_core.hyco.sas import Token

RELAY_SCOPE = "https://relay.azure.net/.default"
DEADLINE = 10.0
"""Time limit in seconds for all attempts to obtain one token."""
CLIENT_REUSE = 300.0
"""Seconds for which a client reuses a token. Running `az` takes half a second, and a client connects in bursts.

An agent does not reuse tokens: it requests a new token to connect, to renew, and after the relay has refused the last
token.
"""
LONGEST_VALIDITY = 7 * 24 * 3600.0
"""Seconds above which a token's validity is a mistake of its issuer; Entra ID issues tokens for up to 28 hours."""
MIN_LEFT = 300.0
"""Remaining lifetime in seconds below which a token is not reused."""

logger = logging.getLogger(__name__)


class TokenSource:
    """Requests tokens from a list of identities, in order and within one deadline.

    Args:
        identities: Identities to try.
        tls: TLS context; None for the system's certificate authorities.
        deadline: Seconds for all identities together.
    """

    def __init__(
        self, identities: Sequence[Identity], *, tls: ssl.SSLContext | None = None, deadline: float = DEADLINE
    ) -> None:
        self._identities = tuple(identities)
        self._tls = tls
        self._deadline = deadline
        self.used: Identity | None = None
        """The identity that provided the last token."""
        self.tried: list[str] = []
        """Result of each identity in the last request, for messages."""

    async def token(self, scope: str, *, within: float | None = None, **options: Any) -> Token:
        """Return a token from the first identity that provides one.

        Args:
            scope: OAuth scope.
            within: Time limit in seconds, if shorter than the deadline.
            options: Further arguments of the SDK's `get_token`.

        Raises:
            ConfigurationError: No identity is available in this environment.
            Unauthorized: An identity was refused.
            RelayUnreachable: An identity received no answer; a later attempt may succeed.
        """
        ends_at = time.monotonic() + min(self._deadline, within or self._deadline)
        failures: list[tuple[Identity, Failure]] = []
        self.used, self.tried = None, []
        for identity in self._identities:
            left = ends_at - time.monotonic()
            if left <= 0:
                self.tried.append(f"{identity.label}: not tried, because no time was left")
                continue
            try:
                token = await acquire(identity, scope, within=left, tls=self._tls, **options)
            except IdentityFailed as failed:
                self.tried.append(f"{identity.label}: {failed}")
                failures.append((identity, failed.failure))
                continue
            self.tried.append(f"{identity.label}: token")
            self.used = identity
            return token
        raise self._no_token_error(scope, failures)

    def _no_token_error(self, scope: str, failures: Sequence[tuple[Identity, Failure]]) -> RelayDebugError:
        sentence = f"no Entra ID token for {scope.rpartition('/')[0]}: {'; '.join(self.tried)}"
        # Report a refusal first: that identity is configured, so it is most likely the intended one.
        for identity, failure in failures:
            if failure is Failure.REFUSED:
                return Unauthorized(sentence, hint=refused_hint(identity, os.environ))
        if any(failure is Failure.NO_ANSWER for _, failure in failures):
            return RelayUnreachable(
                sentence,
                hint="check the network, HTTPS_PROXY and NO_PROXY, and retry; use --identity NAME to try only one "
                "identity",
            )
        developer = any(identity.program for identity in self._identities)
        return ConfigurationError(
            sentence,
            hint="run: az login"
            if developer
            else "assign a managed identity to this compute, or use a connection string",
        )


class EntraCredential:
    """A `Credential` with tokens from Entra ID.

    If no new token is available, the last one is used until it expires. Once the source has provided a token, every
    failure is raised as the retryable `RelayUnreachable`.

    Args:
        source: Provides tokens.
        reuse_for: Seconds for which a token is reused.
        clock: Returns Unix seconds.
    """

    role_grace = ROLE_PROPAGATION

    def __init__(self, source: TokenSource, *, reuse_for: float = 0.0, clock: Callable[[], float] = time.time) -> None:
        self.source = source
        self._reuse_for = reuse_for
        self._clock = clock
        self._last: Token | None = None
        self._fetched_at = 0.0
        self._request_lock = asyncio.Lock()

    async def token(self, endpoint: Endpoint) -> Token:  # noqa: ARG002 - one audience for all relays
        """Return a token for any hybrid connection; concurrent calls share one request.

        Raises:
            RelayDebugError: No new token is available, and the last one has expired.
        """
        async with self._request_lock:
            if self._last is not None and self._is_fresh():
                return self._last
            try:
                self._last = await self.source.token(RELAY_SCOPE)
            except RelayDebugError as error:
                return self._reuse_last_token(error)
            self._fetched_at = self._clock()
            return self._last

    def refused(self) -> None:
        """Request a new token at the next call of `token`."""
        self._fetched_at = 0.0

    def _is_fresh(self) -> bool:
        age = self._clock() - self._fetched_at
        return 0 <= age < self._reuse_for and self._left() > MIN_LEFT

    def _left(self) -> float:
        """Return the remaining lifetime of the last token in seconds."""
        expires_at = self._last.expires_at if self._last is not None else None
        return 0.0 if expires_at is None else expires_at - self._clock()

    def _reuse_last_token(self, error: RelayDebugError) -> Token:
        if self._last is None:
            raise error
        if self._left() > 0:
            logger.debug("using the previous token, which is valid for another %.0f s: %s", self._left(), error)
            return self._last
        raise RelayUnreachable(error.sentence, hint=error.hint) from error
