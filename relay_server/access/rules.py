"""Who may do what: tokens against the rules of a namespace and its hybrid connections.

A token is checked by the first verifier that recognises its kind. The one for shared access signatures is here, the
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
"""Far above any token in use (JWTs: 2-8 KiB); keeps a renewToken message from being hashed for long."""
_DECOY_KEY = "-"
"""Checked when no rule has the token's name, so that the answer takes as long as for a wrong signature."""
_BEARER = "bearer "


@dataclass(frozen=True)
class Grant:
    """A token that was found good."""

    expires_at: float
    """Unix seconds."""
    rule: str
    """Name of the rule or subject, for the log."""


ANONYMOUS = Grant(expires_at=math.inf, rule="anonymous")
"""What a sender has where no token is needed."""


class TokenVerifier(Protocol):
    """Checks one kind of token."""

    def recognises(self, token: str) -> bool:
        """Whether this text is meant to be a token of this kind."""

    def verify(self, token: str, *, right: Right, path: str, connection: HybridConnection | None, now: float) -> Grant:
        """Return what the token grants.

        Args:
            token: As the client sent it.
            right: What it is needed for.
            path: The path that was asked for; the hybrid connection's name and, for a sender, what follows it.
            connection: The hybrid connection, or None if there is none of this name.
            now: Unix seconds.

        Raises:
            Refusal: the token is not good for this.
        """


class SasVerifier:
    """Checks shared access signatures.

    Args:
        hosts: Host names that a token's audience may have.
        rules: The rules of the namespace.
    """

    def __init__(self, *, hosts: Sequence[str], rules: Sequence[Rule]) -> None:
        self._hosts = tuple(hosts)
        self._rules = tuple(rules)

    def recognises(self, token: str) -> bool:
        """Whether the text begins like a shared access signature."""
        return token.lower().startswith("sharedaccesssignature")

    def verify(self, token: str, *, right: Right, path: str, connection: HybridConnection | None, now: float) -> Grant:
        """Check signature, expiry, audience and right, in this order: the first fault is the one that is told."""
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
        """Return the first rule, the hybrid connection's before the namespace's, one of whose keys signed the token."""
        named = [rule for rule in rules if rule.name.lower() == token.key_name.lower()]
        for rule in named:
            for key in rule.keys:
                if token.is_signed_with(key):
                    return rule
        if not named:
            token.is_signed_with(_DECOY_KEY)
        return None


class Authorizer:
    """Decides about requests with and without a token.

    Args:
        verifiers: Asked in order; the first that recognises a token decides.
    """

    def __init__(self, verifiers: Sequence[TokenVerifier]) -> None:
        self._verifiers = tuple(verifiers)

    def check(
        self, token: str | None, *, right: Right, path: str, connection: HybridConnection | None, now: float
    ) -> Grant:
        """Return what the token grants.

        A sender needs none if the hybrid connection says so; a hybrid connection that does not exist needs one,
        so that only its holder learns of it.

        Raises:
            Refusal: 401.
        """
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
