"""Selection of the address, the credential and the tunnel key from the user's settings.

Sources are tried in the order of `relay_core.auth.sources`, then a Key Vault secret, then Entra ID without a connection
string. Explicit options and arguments take precedence over environment variables. The first source that is present is
used. If it is invalid, that is an error: silently falling back could connect to a different relay.

Why only the first source is read, and its error is final: a fallback makes the outcome depend on which service happens
to answer. With a vault that is unreachable for a moment, a job would listen on another relay than its client dials, and
nobody would see an error. For the same reason, sources that a user may have forgotten, such as a file in the working
directory, are logged at INFO.

Why `Source` has a `finding` and a `read`: `--explain-auth` and the error for missing settings have to list all sources,
also those that would not be used, without reading a secret or using the network. With the usual chain of `if`, that
list is a second description of the order, which differs from the first one sooner or later.

The tunnel key has an order of its own, because it may come from elsewhere than the credential: with Entra ID, there is
no connection string that could contain it.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from relay_core.access_settings import (
    CONNECTION_STRING_SECRET_VARIABLE,
    KEY_VAULT_VARIABLE,
    NAMESPACE_VARIABLE,
    TUNNEL_KEY_FILE_VARIABLE,
    TUNNEL_KEY_SECRET_VARIABLE,
    TUNNEL_KEY_VARIABLE,
    AccessSettings,
    Side,
)
from relay_core.auth.entra import CLIENT_REUSE, DEADLINE, LONGEST_VALIDITY, EntraCredential, TokenSource
from relay_core.auth.identity import choose_identities
from relay_core.auth.key_vault import KeyVault, parse_vault_url
from relay_core.auth.sas_credentials import credential_from_connection_string
from relay_core.auth.sources import (
    ConnectionText,
    Source,
    choose,
    in_order,
    local_sources,
    not_configured,
    read_secret_file,
    source_of,
)
from relay_core.errors import ConfigurationError, RelayDebugError, UsageError
from relay_core.hyco.address import Endpoint, parse_namespace
from relay_core.hyco.connection_string import parse_tunnel_key
from relay_core.hyco.family import FamilyName
from relay_core.hyco.sas import Credential, Token

logger = logging.getLogger(__name__)


KEY_VAULT = "Key Vault"
ENTRA_ID = "Entra ID"


@dataclass(frozen=True)
class Access:
    """Address, credential and tunnel key of a hybrid connection; `repr()` omits secrets."""

    endpoint: Endpoint
    credential: Credential
    tunnel_key: bytes | None = field(repr=False)
    source: str
    """Name of the source, for logs."""


async def find_access(
    settings: AccessSettings, *, side: Side, tls: ssl.SSLContext | None = None, deadline: float = DEADLINE
) -> Access:
    """Read the first source that is present.

    Args:
        settings: Explicit settings; environment variables are used for the others.
        side: Selects the Entra identities: those of compute for an agent, those of a developer for a client.
        tls: TLS context for Key Vault and Entra ID; None for the system's certificate authorities.
        deadline: Time limit in seconds for Key Vault, and likewise for Entra ID.

    Raises:
        RelayDebugError: No source is configured, or the first one is invalid; see `relay_core.errors`.
    """
    search = Search(settings, side=side, tls=tls, deadline=deadline)
    source = choose(search.access_sources())
    if source is None or source.read is None:
        raise search.not_configured()
    access = await source.read()
    level = logging.DEBUG if source.name.startswith(_COMMON_SOURCES) else logging.INFO
    logger.log(level, "credentials: %s", access.source)
    key_source = choose(search.tunnel_key_sources(access))
    tunnel_key = await key_source.read() if key_source is not None and key_source.read is not None else None
    return replace(access, tunnel_key=tunnel_key)


_COMMON_SOURCES = ("--connection-string", "RELAY_CONNECTION_STRING")
"""Sources whose names begin so are logged only at DEBUG. Any other may surprise the user and is logged at INFO."""


class Search:
    """Searches the credential sources of one program.

    Args:
        settings: Explicit settings.
        side: Selects the Entra identities.
        tls: TLS context for Key Vault and Entra ID; None for the system's certificate authorities.
        deadline: Seconds for each source that needs the network.
    """

    def __init__(
        self, settings: AccessSettings, *, side: Side, tls: ssl.SSLContext | None = None, deadline: float = DEADLINE
    ) -> None:
        self._settings = settings
        self._side: Side = side
        self._tls = tls
        self._deadline = deadline

    @cached_property
    def tokens(self) -> TokenSource:
        """The source of Entra ID tokens, for the relay and for Key Vault.

        Raises:
            ConfigurationError: The settings or the environment name an unknown identity.
        """
        identities = choose_identities(self._side, requested=self._settings.identity, environ=os.environ)
        return TokenSource(identities, tls=self._tls, deadline=self._deadline)

    # Address and credential:

    def access_sources(self) -> list[Source[Awaitable[Access]]]:
        """Return the sources of address and credential; `choose` puts explicit ones first."""
        local = [self._local(source) for source in local_sources(self._settings, os.environ)]
        return [*local, self._key_vault(), self._entra()]

    def not_configured(self) -> ConfigurationError:
        """Return the error for the case in which no source is present."""
        return self._missing_vault(self._secret()) or not_configured()

    def _local(self, source: Source[ConnectionText]) -> Source[Awaitable[Access]]:
        read = source.read
        if read is None:
            return Source(source.name, source.finding, explicit=source.explicit)

        async def read_access() -> Access:
            return self._access(read(), source.name)

        return Source(source.name, source.finding, read_access, explicit=source.explicit)

    def _key_vault(self) -> Source[Awaitable[Access]]:
        name, vault = self._secret(), self._vault()
        if not name:
            missing = f"no secret given (--connection-string-secret, {CONNECTION_STRING_SECRET_VARIABLE})"
            return Source(KEY_VAULT, f"{vault}, but {missing}" if vault else missing)
        if not vault:
            return Source(KEY_VAULT, f"secret '{name}', but no vault given (--key-vault, {KEY_VAULT_VARIABLE})")

        async def read_access() -> Access:
            return self._access(ConnectionText(await self._read_secret(name)), f"Key Vault secret '{name}'")

        explicit = self._settings.connection_string_secret is not None
        return Source(KEY_VAULT, f"secret '{name}' in {vault}", read_access, explicit=explicit)

    def _entra(self) -> Source[Awaitable[Access]]:
        namespace = self._settings.namespace or os.environ.get(NAMESPACE_VARIABLE)
        if not namespace:
            return Source(ENTRA_ID, f"no namespace given (--namespace, {NAMESPACE_VARIABLE})")

        async def read_access() -> Access:
            host, port = parse_namespace(namespace)
            if not self._settings.hc:
                raise UsageError("no hybrid connection given", hint="add --hc NAME")
            name = FamilyName.parse(self._settings.hc)
            endpoint = Endpoint(host, port, name.path, name.size or 1)
            return Access(endpoint, self._entra_credential(), None, f"{ENTRA_ID}, namespace {host}")

        return Source(ENTRA_ID, f"namespace {namespace}", read_access, explicit=self._settings.namespace is not None)

    def _access(self, found: ConnectionText, source: str) -> Access:
        parsed = found.parse(source, self._settings.hc)
        entra = parsed.managed_identity
        credential = self._entra_credential() if entra else credential_from_connection_string(parsed)
        label = f"{source}, with {ENTRA_ID}" if entra else source
        return Access(parsed.endpoint(), credential, parsed.tunnel_key, label)

    def _entra_credential(self) -> EntraCredential:
        return EntraCredential(self.tokens, reuse_for=CLIENT_REUSE if self._side == "client" else 0.0)

    # Tunnel key, in order of precedence:
    #
    # 1. --tunnel-key-file             must not be readable by other users (0600)
    # 2. --tunnel-key-secret           name of a Key Vault secret
    # 3. TunnelKey= in the connection string
    # 4. RELAY_TUNNEL_KEY              environment
    # 5. RELAY_TUNNEL_KEY_FILE         environment; the file must not be readable by other users
    # 6. RELAY_TUNNEL_KEY_SECRET       environment; name of a Key Vault secret

    def tunnel_key_sources(self, access: Access) -> list[Source[Awaitable[bytes]]]:
        """Return the sources of the tunnel key, including the connection string that `access` was read from."""
        settings, environ, own_key = self._settings, os.environ, access.tunnel_key
        given, in_secret = settings.tunnel_key_secret, environ.get(TUNNEL_KEY_SECRET_VARIABLE)

        async def of_string() -> bytes:
            return own_key or b""

        async def of_variable(text: str) -> bytes:
            return parse_tunnel_key(text, f"the tunnel key from {TUNNEL_KEY_VARIABLE}")

        async def of_file(path: str) -> bytes:
            return parse_tunnel_key(read_secret_file(path), f"the tunnel key from {path}")

        async def of_secret(name: str) -> bytes:
            return parse_tunnel_key(await self._read_secret(name), f"the tunnel key from Key Vault secret '{name}'")

        def finding(secret: str | None) -> str:
            return f"secret '{secret}' in {self._vault() or 'no vault'}"

        in_string = Source("TunnelKey", "in the connection string", of_string)
        return [
            source_of("--tunnel-key-file", settings.tunnel_key_file, of_file, explicit=True),
            source_of("--tunnel-key-secret", given, of_secret, finding(given), explicit=True),
            in_string if own_key else Source("TunnelKey", "not in the connection string"),
            source_of(TUNNEL_KEY_VARIABLE, environ.get(TUNNEL_KEY_VARIABLE), of_variable, "set"),
            source_of(TUNNEL_KEY_FILE_VARIABLE, environ.get(TUNNEL_KEY_FILE_VARIABLE), of_file),
            source_of(TUNNEL_KEY_SECRET_VARIABLE, in_secret, of_secret, finding(in_secret)),
        ]

    # Key Vault:

    def _secret(self) -> str | None:
        return self._settings.connection_string_secret or os.environ.get(CONNECTION_STRING_SECRET_VARIABLE)

    def _vault(self) -> str | None:
        return self._settings.key_vault or os.environ.get(KEY_VAULT_VARIABLE)

    def _missing_vault(self, name: str | None) -> ConfigurationError | None:
        if not name or self._vault():
            return None
        return ConfigurationError(
            f"secret '{name}' is given without a Key Vault", hint=f"set {KEY_VAULT_VARIABLE}, or use --key-vault"
        )

    async def _read_secret(self, name: str) -> str:
        if error := self._missing_vault(name):
            raise error
        vault = KeyVault(parse_vault_url(self._vault() or ""), self.tokens, tls=self._tls, deadline=self._deadline)
        return await vault.read(name)


# Output of `--explain-auth`: all credential sources in order, what was found, and which one is used.

T = TypeVar("T")

_CREDENTIALS_TITLE = "credential sources (the first match is used):"
_TUNNEL_KEY_TITLE = "tunnel key sources (the first match is used):"


async def explain_access(search: Search) -> tuple[list[str], RelayDebugError | None]:
    """Return the lines to print and the error with which a program would fail, or None.

    The source in use is read, which includes requests to Key Vault and Entra ID. The lines contain no secrets.
    """
    accesses = search.access_sources()
    source = choose(accesses)
    if source is None:
        return [_CREDENTIALS_TITLE, *_table(accesses, "")], search.not_configured()
    access, error, result = await _read(source)
    if access is not None:
        result, error = await _describe(access)
    lines = [_CREDENTIALS_TITLE, *_table(accesses, result)]
    if access is None:
        return lines, error
    keys = search.tunnel_key_sources(access)
    key_source = choose(keys)
    if key_source is None:
        lines += [_TUNNEL_KEY_TITLE, *_table(keys, "")]
        lines.append("without a tunnel key, the relay operator and holders of the relay's keys can read the traffic")
        return lines, error
    key, key_error, key_result = await _read(key_source)
    lines += [_TUNNEL_KEY_TITLE, *_table(keys, "used" if key else key_result)]
    return lines, error or key_error


async def _read(source: Source[Awaitable[T]]) -> tuple[T | None, RelayDebugError | None, str]:
    """Return the source's value, or the error and its text for the table."""
    if source.read is None:
        return None, None, ""
    try:
        return await source.read(), None, ""
    except RelayDebugError as error:
        return None, error, f"unusable: {error.sentence}"


async def _describe(access: Access) -> tuple[str, RelayDebugError | None]:
    """Return the table entry of the access in use; requests a token if it comes from Entra ID."""
    what = f"used: {access.endpoint}, {access.credential}"
    if not isinstance(access.credential, EntraCredential):
        return what, None
    source = access.credential.source
    try:
        token = await access.credential.token(access.endpoint)
    except RelayDebugError as error:
        return f"unusable: {error.sentence}", error
    return f"used: {access.endpoint}, {'; '.join(source.tried)}{_validity(token)}", None


def _validity(token: Token) -> str:
    """Return how long a token of Entra ID is valid; "" if its issuer has given no plausible time."""
    left = (token.expires_at or 0.0) - time.time()
    if token.expires_at is None or left > LONGEST_VALIDITY:
        return ""
    return f", valid for {left / 60:.0f} min" if left > 0 else ", expired"


def _table(sources: Sequence[Source[T]], result: str) -> list[str]:
    """Return one line per source, with `result` appended to the one in use."""
    used = choose(sources)
    width = max(len(source.name) for source in sources)
    lines = []
    for source in in_order(sources):
        entry = source.finding
        if source is used:
            entry = f"{entry} -> {result}"
        elif source.read is not None:
            entry = f"{entry} (not used: {used.name if used else ''} takes precedence)"
        lines.append(f"  {source.name:<{width}}  {entry}")
    return lines
