"""Reading of secrets from an Azure Key Vault.

A vault answers the first request with a challenge that names its tenant. The SDK then requests a token for that tenant
from the token source. One deadline covers all these requests.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay_core.auth.azure_sdk import brief, open_transport
from relay_core.auth.entra import TokenSource
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, RelayDebugError, RelayUnreachable, Unauthorized
from relay_core.untrusted_certificates import untrusted_certificate

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import AzureError, HttpResponseError
    from azure.keyvault.secrets.aio import SecretClient

PUBLIC_SUFFIX = ".vault.azure.net"
REPORT_MARGIN = 0.5
"""How many seconds before the deadline token requests time out, so that their error is reported instead of the
vault's."""
_SECRET_NAME = re.compile(r"[0-9A-Za-z-]{1,127}")
_VAULT_NAME = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{1,22})[0-9A-Za-z]")
_ROLE_HINT = (
    "run: az role assignment create --role 'Key Vault Secrets User' --assignee <identity> --scope "
    "<vault>/secrets/{name}; a new role takes up to 5 minutes to take effect"
)
_POLICY_HINT = (
    "run: az keyvault set-policy -n {vault} --object-id <identity> --secret-permissions get; this vault uses access "
    "policies and ignores roles"
)


def parse_vault_url(text: str) -> str:
    """Return the URL of a vault that is given by URL or by name.

    >>> parse_vault_url("contoso-kv")
    'https://contoso-kv.vault.azure.net'

    Raises:
        ConfigurationError: The text is neither a name nor an https URL.
    """
    text = text.strip()
    if _VAULT_NAME.fullmatch(text):
        return f"https://{text.lower()}{PUBLIC_SUFFIX}"
    try:
        url = urlsplit(text)
        usable = url.scheme.lower() == "https" and url.hostname and url.path in {"", "/"} and not url.query
        port = f":{url.port}" if url.port else ""
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            "the Key Vault address is invalid", hint=f"use the format https://contoso-kv{PUBLIC_SUFFIX}/"
        )
    return f"https://{url.hostname}{port}"


class KeyVault:
    """Reads secrets from one vault.

    Args:
        url: URL from `parse_vault_url`.
        source: Provides the token for the vault.
        tls: TLS context; None for the system's certificate authorities.
        deadline: Seconds for reading one secret, including token requests.
    """

    def __init__(self, url: str, source: TokenSource, *, tls: ssl.SSLContext | None, deadline: float) -> None:
        self.host = url.partition("//")[2]
        self._url = url
        self._source = source
        self._tls = tls
        self._deadline = deadline

    async def read(self, name: str) -> str:
        """Return the current value of a secret.

        Raises:
            ConfigurationError: The name is invalid, or the secret does not exist or is deleted, disabled or empty.
            Unauthorized: The vault or Entra ID refused access.
            RelayUnreachable: The vault cannot be reached, or did not answer within the deadline.
            UntrustedCertificate: The vault's TLS certificate is not trusted.
        """
        if not _SECRET_NAME.fullmatch(name):
            raise ConfigurationError(
                f"'{name[:130]}' is not a valid Key Vault secret name",
                hint="use only letters, digits and '-'; infra/create_relay.sh prints the names that it used",
            )
        try:
            async with timeout(self._deadline):
                return await self._read(name)
        except TIMEOUT_ERRORS:
            raise self._unreachable(f"no answer within {self._deadline:g} s") from None

    async def _read(self, name: str) -> str:
        from azure.core.exceptions import AzureError  # noqa: PLC0415
        from azure.keyvault.secrets.aio import SecretClient  # noqa: PLC0415

        ends_at = time.monotonic() + self._deadline - REPORT_MARGIN
        async with SecretClient(
            vault_url=self._url,
            credential=_Tokens(self._source, ends_at),
            transport=open_transport(self._tls),
            retry_total=2,
            retry_backoff_factor=0.3,
        ) as client:
            try:
                value = (await client.get_secret(name)).value
            except (AzureError, ValueError) as error:
                raise await self._to_our_error(error, name, client) from None
        if not value or not value.strip():
            raise ConfigurationError(f"secret '{name}' in {self.host} is empty", hint="set its value again")
        return value.strip()

    async def _to_our_error(self, error: AzureError | ValueError, name: str, client: SecretClient) -> RelayDebugError:
        from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError  # noqa: PLC0415

        if isinstance(error, HttpResponseError) and error.status_code is not None:
            if error.status_code == 404:
                return await self._missing(name, client)
            return self._refused(error, name)
        if isinstance(error, (ServiceRequestError, ServiceResponseError)):
            return self._connection_error(error)
        return RelayUnreachable(
            f"{self.host} is not a Key Vault: {brief(str(error))}", hint="check --key-vault or KEY_VAULT_URL"
        )

    def _refused(self, error: HttpResponseError, name: str) -> RelayDebugError:
        """Return the error for a status other than 404; the vault's error code distinguishes several kinds of 403."""
        status, code, used = error.status_code, _inner_code(error), self._source.used
        identity = used.label if used is not None else "this identity"
        if status == 401:
            return Unauthorized(
                f"the Key Vault {self.host} refused the token of {identity} (401)",
                hint="use an identity in the vault's tenant; compare the output of 'az account show' and 'az "
                "keyvault show'",
            )
        if status == 403 and code in {"ForbiddenByFirewall", "ForbiddenByConnection"}:
            return Unauthorized(
                f"the firewall of Key Vault {self.host} blocks this machine (403)",
                hint="allow this machine's network, or use the vault's private endpoint",
            )
        if status == 403 and code == "SecretDisabled":
            return ConfigurationError(
                f"secret '{name}' in {self.host} is disabled", hint="enable it, or create a new version"
            )
        if status == 403 and code in {"ForbiddenByPolicy", "AccessDenied"}:
            return Unauthorized(
                f"{identity} is not permitted to read secret '{name}' in {self.host} (403): none of the vault's access "
                "policies allows this",
                hint=_POLICY_HINT.format(vault=self.host.partition(".")[0]),
            )
        if status == 403:
            return Unauthorized(
                f"{identity} is not permitted to read secret '{name}' in {self.host} (403): the role Key Vault Secrets "
                "User is missing or has not taken effect yet",
                hint=_ROLE_HINT.format(name=name),
            )
        return RelayUnreachable(
            f"the Key Vault {self.host} is temporarily unavailable ({status})", hint="retry in a few minutes"
        )

    async def _missing(self, name: str, client: SecretClient) -> ConfigurationError:
        """Return the error for a 404; a second request determines whether a deleted secret can be recovered."""
        from azure.core.exceptions import AzureError  # noqa: PLC0415

        vault = self.host.partition(".")[0]
        try:
            await client.get_deleted_secret(name)
        except AzureError:  # not deleted, or no permission to list deleted secrets, which most identities lack
            return ConfigurationError(
                f"the Key Vault {self.host} has no secret '{name}'",
                hint=f"check the name; to list the names, run: az keyvault secret list --vault-name {vault} -o table",
            )
        return ConfigurationError(
            f"secret '{name}' in {self.host} was deleted and can be recovered",
            hint=f"run: az keyvault secret recover --vault-name {vault} --name {name}",
        )

    def _connection_error(self, error: AzureError) -> RelayDebugError:
        # An attribute of aiohttp's ClientConnectorCertificateError.
        fault = getattr(error.inner_exception, "certificate_error", None)
        if isinstance(fault, ssl.SSLCertVerificationError):
            return untrusted_certificate(
                self.host,
                fault,
                ca_hint="behind a TLS-inspecting proxy, specify the proxy's CA with --ca-file or RELAY_CA_FILE",
            )
        return self._unreachable(brief(str(error)))

    def _unreachable(self, reason: str) -> RelayUnreachable:
        return RelayUnreachable(
            f"the Key Vault {self.host} cannot be reached: {reason}",
            hint="check its name, HTTPS_PROXY and the network; a vault with a private endpoint can be reached only "
            "from its network, and a deleted vault cannot be reached at all",
        )


class _Tokens:
    """The SDK's credential interface, implemented by a token source."""

    def __init__(self, source: TokenSource, ends_at: float) -> None:
        self._source = source
        self._ends_at = ends_at

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        from azure.core.credentials import AccessToken  # noqa: PLC0415

        known = {name: options[name] for name in ("claims", "tenant_id", "enable_cae") if options.get(name)}
        within = max(0.1, self._ends_at - time.monotonic())
        issued = await self._source.token(scopes[0], within=within, **known)
        return AccessToken(issued.value, int(issued.expires_at or 0))

    async def close(self) -> None:
        """Do nothing; no connections are kept open."""

    async def __aenter__(self) -> _Tokens:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None


def _inner_code(error: HttpResponseError) -> str:
    """Return the most specific error code of a vault's response, or ""."""
    try:
        response = json.loads(error.response.text()) if error.response is not None else {}
        found = response.get("error", {})
        return str((found.get("innererror") or found).get("code", ""))
    except (ValueError, AttributeError):
        return ""
