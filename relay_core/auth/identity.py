"""Entra identities: which ones are tried, in which order, and when one is unavailable. Makes no requests.

    environment     service principal: AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or ..._CERTIFICATE_PATH
    workload        Kubernetes workload identity: AZURE_FEDERATED_TOKEN_FILE, AZURE_TENANT_ID, AZURE_CLIENT_ID
    on-behalf-of    the user who submitted the Azure ML job: OBO_ENDPOINT
    managed         managed identity of the machine, job or container; DEFAULT_IDENTITY_CLIENT_ID (Azure ML) or
                    AZURE_CLIENT_ID selects one of several
    azure-cli       `az login`
    azd             `azd auth login`
    powershell      `Connect-AzAccount`

An agent tries the group `prod`: the first four. A client tries the group `dev`: environment and the last three.
`--identity`, RELAY_IDENTITY or, as in every Azure SDK, AZURE_TOKEN_CREDENTIALS selects another group or one of the
names above.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from relay_core.access_settings import IDENTITY_VARIABLE, Side
from relay_core.errors import ConfigurationError

SDK_VARIABLE = "AZURE_TOKEN_CREDENTIALS"


@dataclass(frozen=True)
class Identity:
    """A kind of Entra identity, and what it requires."""

    name: str
    label: str
    """Name in messages."""
    sdk_name: str
    """The class in the Azure SDKs, which AZURE_TOKEN_CREDENTIALS may name; "" if there is none."""
    variables: tuple[str, ...] = ()
    """Environment variables that must all be set."""
    one_of: tuple[str, ...] = ()
    """Environment variables of which at least one must be set."""
    program: str = ""
    """Program that must be on the PATH."""

    def unavailable_reason(self, environ: Mapping[str, str]) -> str:
        """Return why this identity cannot be used here, or "" if it may be available."""
        unset = [name for name in self.variables if not environ.get(name)]
        if unset:
            return f"{', '.join(unset)} not set"
        if self.one_of and not any(environ.get(name) for name in self.one_of):
            return f"neither {' nor '.join(self.one_of)} is set"
        if self.program and shutil.which(self.program, path=environ.get("PATH")) is None:
            return f"'{self.program}' is not on the PATH"
        return ""


_ENVIRONMENT = Identity(
    "environment",
    "service principal",
    "EnvironmentCredential",
    variables=("AZURE_TENANT_ID", "AZURE_CLIENT_ID"),
    one_of=("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"),
)
_WORKLOAD = Identity(
    "workload",
    "workload identity",
    "WorkloadIdentityCredential",
    variables=("AZURE_FEDERATED_TOKEN_FILE", "AZURE_TENANT_ID", "AZURE_CLIENT_ID"),
)
_ON_BEHALF_OF = Identity("on-behalf-of", "Azure ML on-behalf-of", "", variables=("OBO_ENDPOINT",))
_MANAGED = Identity("managed", "managed identity", "ManagedIdentityCredential")
_AZURE_CLI = Identity("azure-cli", "Azure CLI", "AzureCliCredential", program="az")
_AZD = Identity("azd", "Azure Developer CLI", "AzureDeveloperCliCredential", program="azd")
_POWERSHELL = Identity("powershell", "Azure PowerShell", "AzurePowerShellCredential", program="pwsh")

IDENTITIES = {
    identity.name: identity
    for identity in (_ENVIRONMENT, _WORKLOAD, _ON_BEHALF_OF, _MANAGED, _AZURE_CLI, _AZD, _POWERSHELL)
}
_GROUPS = {
    "prod": (_ENVIRONMENT, _WORKLOAD, _ON_BEHALF_OF, _MANAGED),
    "dev": (_ENVIRONMENT, _AZURE_CLI, _AZD, _POWERSHELL),
}


def choose_identities(side: Side, *, requested: str | None, environ: Mapping[str, str]) -> tuple[Identity, ...]:
    """Return the identities to try, in order.

    Args:
        side: Selects the default group.
        requested: Value of `--identity`; takes precedence.
        environ: Environment variables, which may name a group or an identity too.

    Raises:
        ConfigurationError: A name is unknown.
    """
    for where, text in (
        ("--identity", requested),
        (IDENTITY_VARIABLE, environ.get(IDENTITY_VARIABLE)),
        (SDK_VARIABLE, environ.get(SDK_VARIABLE)),
    ):
        if text:
            return _named(text.strip(), where)
    return _GROUPS["prod" if side == "agent" else "dev"]


def managed_client_id(environ: Mapping[str, str]) -> str | None:
    """Return the client id of the managed identity to use; None for the machine's only one."""
    variable = _managed_client_variable(environ)
    return environ[variable] if variable else None


def refused_hint(identity: Identity, environ: Mapping[str, str]) -> str:
    """Return what helps if Entra ID or the endpoint on this machine gave no token to an identity."""
    if identity is not _MANAGED:
        return "correct the refused identity's settings, or sign in again"
    if variable := _managed_client_variable(environ):
        return (
            f"assign the identity with the client id {environ[variable]} to this compute, or correct {variable}, which "
            "selects it"
        )
    return (
        "assign a managed identity to this compute; if it has several, select one with AZURE_CLIENT_ID; or use a "
        "connection string"
    )


def _managed_client_variable(environ: Mapping[str, str]) -> str | None:
    # Azure ML sets DEFAULT_IDENTITY_CLIENT_ID to the identity of the job, but no SDK reads it.
    return next((name for name in ("DEFAULT_IDENTITY_CLIENT_ID", "AZURE_CLIENT_ID") if environ.get(name)), None)


def _named(text: str, where: str) -> tuple[Identity, ...]:
    if group := _GROUPS.get(text.lower()):
        return group
    for identity in IDENTITIES.values():
        if text.lower() in {identity.name, identity.sdk_name.lower()} - {""}:
            return (identity,)
    raise ConfigurationError(
        f"{where} names an unknown identity: '{text[:60]}'", hint=f"use one of: {', '.join((*_GROUPS, *IDENTITIES))}"
    )
