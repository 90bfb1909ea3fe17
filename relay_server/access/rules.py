"""Authorization of requests: tokens and the rules of a namespace and its hybrid connections.

The first verifier that recognises the kind of a token checks it. The verifier for shared access signatures is here, the
one for JWTs in `relay_server.access.jwt`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay_core.errors import ProtocolError
from relay_core.hyco.sas import SasToken
from relay_server.config.model import HybridConnection, Right, Rule
from relay_server.protocol.refusals import malformed_token, missing_right, missing_token, unauthorized

__all__ = ["ANONYMOUS", "Authorizer", "Grant", "SasVerifier", "TokenVerifier"]

MAX_TOKEN_CHARS = 16 * 1024
"""Maximum size of a token, far above that of real tokens (JWTs: 2-8 KiB); limits the time for hashing a token."""
_DECOY_KEY = "-"
"""Key for a token that names an unknown rule, so that the response takes as long as for a wrong signature."""
_BEARER = "bearer "


@dataclass(frozen=True)
class Grant:
    """The result of a successful token check."""

    expires_at: float
    """Unix seconds."""
    rule: str
    """Name of the rule, or the token's subject, for logs."""


ANONYMOUS = Grant(expires_at=math.inf, rule="anonymous")
"""The grant of a sender that needs no token."""


class TokenVerifier(Protocol):
    """Checks one kind of token."""

    def recognises(self, token: str) -> bool:
        """Return True if the text looks like a token of this kind."""

    def verify(self, token: str, *, right: Right, path: str, connection: HybridConnection | None, now: float) -> Grant:
        """Verify a token.

        Args:
            token: Text from the client.
            right: The required right.
            path: The requested path: the name of the hybrid connection and, for a sender, the rest of its path.
            connection: The hybrid connection, or None if it does not exist.
            now: Unix seconds.

        Raises:
            Refusal: The token is invalid or does not grant the right.
        """


class SasVerifier:
    """Verifies shared access signatures.

    Args:
        hosts: Host names that are accepted as audience.
        rules: The rules of the namespace.
    """

    def __init__(self, *, hosts: Sequence[str], rules: Sequence[Rule]) -> None:
        self._hosts = tuple(hosts)
        self._rules = tuple(rules)

    def recognises(self, token: str) -> bool:
        """Return True if the text starts like a shared access signature."""
        return token.lower().startswith("sharedaccesssignature")

    def verify(self, token: str, *, right: Right, path: str, connection: HybridConnection | None, now: float) -> Grant:
        """Check signature, expiry, audience and right, in this order; the first failure is reported."""
        try:
            parsed = SasToken.parse(token)
        except ProtocolError:
            raise malformed_token() from None
        entity_rules = connection.rules if connection is not None else ()
        rule = self._signer(parsed, (*entity_rules, *self._rules))
        if rule is None:
            raise unauthorized("InvalidSignature", "The token has an invalid signature")
        if parsed.expires_at <= now:
            raise unauthorized("ExpiredToken", "The token is expired")
        target = connection.path if connection is not None else path
        if not any(parsed.covers(host=host, path=target) for host in self._hosts):
            raise unauthorized("InvalidAudience", "The token's audience does not match the endpoint")
        if not rule.allows(right):
            raise missing_right(right.value)
        return Grant(expires_at=float(parsed.expires_at), rule=rule.name)

    def _signer(self, token: SasToken, rules: Iterable[Rule]) -> Rule | None:
        """Return the first rule with a key that verifies the signature; those of the hybrid connection come first."""
        named = [rule for rule in rules if rule.name.lower() == token.key_name.lower()]
        for rule in named:
            for key in rule.keys:
                if token.is_signed_with(key):
                    return rule
        if not named:
            token.is_signed_with(_DECOY_KEY)
        return None


class Authorizer:
    """Authorizes requests with and without a token.

    Args:
        verifiers: Token verifiers in order; the first one that recognises a token decides.
    """

    def __init__(self, verifiers: Sequence[TokenVerifier]) -> None:
        self._verifiers = tuple(verifiers)

    def check(
        self, token: str | None, *, right: Right, path: str, connection: HybridConnection | None, now: float
    ) -> Grant:
        """Check a request's token; a sender needs none if the hybrid connection does not require authorization.

        Raises:
            Refusal: 401.
        """
        # An unknown hybrid connection requires a token, so that clients without one cannot discover which ones exist.
        if right is Right.SEND and connection is not None and not connection.requires_client_authorization:
            return ANONYMOUS
        if not token:
            raise missing_token()
        if len(token) > MAX_TOKEN_CHARS or not token.isascii():
            raise malformed_token()
        bare = token[len(_BEARER) :] if token.lower().startswith(_BEARER) else token
        for verifier in self._verifiers:
            if verifier.recognises(bare):
                return verifier.verify(bare, right=right, path=path, connection=connection, now=now)
        raise malformed_token()
