"""Tokens of Entra ID for a relay: who gives them, for how long they are used again, and what is said if nobody does."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay_core.access_settings import Side
from relay_core.auth.azure_sdk import Failure, IdentityFailed, IssuedToken, acquire
from relay_core.auth.identity import Identity, choose_identities
from relay_core.errors import ConfigurationError, RelayDebugError, RelayUnreachable, Unauthorized
from relay_core.hyco.address import Endpoint
from relay_core.hyco.credential import Token
from relay_core.hyco.new_role import ROLE_PROPAGATION

__all__ = ["CLIENT_REUSE", "DEADLINE", "RELAY_SCOPE", "EntraCredential", "TokenSource"]

RELAY_SCOPE = "https://relay.azure.net/.default"
DEADLINE = 10.0
"""Seconds for everything that is tried for one token."""
CLIENT_REUSE = 300.0
"""Seconds for which a client uses a token again: asking `az` costs half a second, and a client connects in bursts.

An agent never does: it asks for a token when it dials, when it renews and when the relay has refused the last one.
"""
MIN_LEFT = 300.0
"""Seconds a token must still live to be used again without asking for a newer one."""

logger = logging.getLogger(__name__)


class TokenSource:
    """Asks identities in order, within one deadline.

    Args:
        identities: Whom to ask.
        environ: Their settings; defaults to the environment of this process, which the SDK reads as well.
        tls: Decides about trust.
        deadline: Seconds for all of them together.
    """

    def __init__(
        self,
        identities: Sequence[Identity],
        *,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._identities = tuple(identities)
        self._environ = os.environ if environ is None else environ
        self._tls = tls
        self._deadline = deadline
        self.used: Identity | None = None
        """Who gave the last token."""
        self.tried: list[str] = []
        """What was tried for the last token, in words."""

    @classmethod
    def for_side(
        cls, side: Side, *, asked: str | None = None, tls: ssl.SSLContext | None = None, deadline: float = DEADLINE
    ) -> TokenSource:
        """Return the source with the identities of an agent or a client, see `relay_core.auth.identity`.

        Raises:
            ConfigurationError: `asked`, or the environment, names an identity that is unknown.
        """
        return cls(choose_identities(side, asked=asked, environ=os.environ), tls=tls, deadline=deadline)

    def __repr__(self) -> str:
        return f"<TokenSource {' '.join(identity.name for identity in self._identities)}>"

    async def token(self, scope: str, *, within: float | None = None, **options: Any) -> IssuedToken:
        """Return a token of the first identity that gives one.

        Args:
            scope: What for.
            within: Seconds, if there are fewer than the deadline's.
            options: Keywords of the SDK's `get_token`.

        Raises:
            ConfigurationError: no identity exists here.
            Unauthorized: one was refused.
            RelayUnreachable: one did not answer; later it may.
        """
        ends_at = time.monotonic() + min(self._deadline, within or self._deadline)
        failures: list[Failure] = []
        self.used, self.tried = None, []
        for identity in self._identities:
            left = ends_at - time.monotonic()
            if left <= 0:
                self.tried.append(f"{identity.label}: not tried, no time was left")
                continue
            try:
                token = await acquire(
                    identity, scope, within=left, environ=self._environ, tls=self._tls, options=options
                )
            except IdentityFailed as failed:
                self.tried.append(f"{identity.label}: {failed.reason}")
                failures.append(failed.failure)
                continue
            self.tried.append(f"{identity.label}: token")
            self.used = identity
            return token
        raise self._nobody(scope, failures)

    def _nobody(self, scope: str, failures: Sequence[Failure]) -> RelayDebugError:
        """Return the error for a round without a token: whoever answered weighs more than who did not."""
        sentence = f"no Entra ID token for {scope.rpartition('/')[0]}: {'; '.join(self.tried)}"
        if Failure.REFUSED in failures:
            return Unauthorized(sentence, hint="the one that was refused needs its settings or its sign-in renewed")
        if Failure.SILENT in failures:
            return RelayUnreachable(
                sentence,
                hint="check the network, HTTPS_PROXY and NO_PROXY, and try again; --identity NAME asks one only",
            )
        developer = any(identity.program for identity in self._identities)
        return ConfigurationError(
            sentence,
            hint="type: az login" if developer else "give this compute a managed identity, or use a connection string",
        )


class EntraCredential:
    """A `Credential` whose tokens come from Entra ID.

    When no new token can be had, the last one is used for as long as it lives; a source that has worked once is
    believed to come back, so that its failures can be tried again.

    Args:
        source: Gives tokens.
        reuse_for: Seconds for which a token is used again.
        role_grace: Seconds for which a relay's refusal may be temporary.
        clock: Unix seconds.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        reuse_for: float = 0.0,
        role_grace: float = ROLE_PROPAGATION,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.source = source
        self.role_grace = role_grace
        self._reuse_for = reuse_for
        self._clock = clock
        self._last: Token | None = None
        self._fetched_at = 0.0
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<EntraCredential {self.source!r}>"

    async def token(self, endpoint: Endpoint) -> Token:  # noqa: ARG002 - one audience for all relays
        """Return a token for any hybrid connection; callers at the same time share one request.

        Raises:
            RelayDebugError: there is none, and the last one has expired.
        """
        async with self._asking:
            if self._last is not None and self._is_fresh():
                return self._last
            try:
                issued = await self.source.token(RELAY_SCOPE)
            except RelayDebugError as error:
                return self._make_do(error)
            self._last = Token(issued.value, issued.expires_on)
            self._fetched_at = self._clock()
            return self._last

    def refused(self) -> None:
        """Ask for a new token next time."""
        self._fetched_at = 0.0

    def _is_fresh(self) -> bool:
        age = self._clock() - self._fetched_at
        return 0 <= age < self._reuse_for and self._left() > MIN_LEFT

    def _left(self) -> float:
        """Return the seconds that the last token still lives."""
        expires_at = self._last.expires_at if self._last is not None else None
        return 0.0 if expires_at is None else expires_at - self._clock()

    def _make_do(self, error: RelayDebugError) -> Token:
        if self._last is None:
            raise error
        if self._left() > 0:
            logger.debug("the last token serves for %.0f s more: %s", self._left(), error)
            return self._last
        raise RelayUnreachable(error.sentence, hint=error.hint) from error
