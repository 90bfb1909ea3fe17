"""What a program was told about credentials, and the environment variables that may tell it the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "CONNECTION_STRING_FILE_VARIABLE",
    "CONNECTION_STRING_SECRET_VARIABLE",
    "CONNECTION_STRING_VARIABLE",
    "IDENTITY_VARIABLE",
    "KEY_VAULT_VARIABLE",
    "NAMESPACE_VARIABLE",
    "TUNNEL_KEY_FILE_VARIABLE",
    "TUNNEL_KEY_SECRET_VARIABLE",
    "TUNNEL_KEY_VARIABLE",
    "AccessSettings",
    "Side",
]

Side = Literal["agent", "client"]
"""Who asks: an agent runs on cloud compute and a client on a developer's machine, so their identities differ."""

CONNECTION_STRING_VARIABLE = "RELAY_CONNECTION_STRING"
CONNECTION_STRING_FILE_VARIABLE = "RELAY_CONNECTION_STRING_FILE"
CONNECTION_STRING_SECRET_VARIABLE = "RELAY_CONNECTION_STRING_SECRET"  # noqa: S105 - a variable's name
KEY_VAULT_VARIABLE = "KEY_VAULT_URL"
"""The name that Microsoft's guide to secrets in Azure ML jobs uses."""
NAMESPACE_VARIABLE = "RELAY_NAMESPACE"
IDENTITY_VARIABLE = "RELAY_IDENTITY"
TUNNEL_KEY_VARIABLE = "RELAY_TUNNEL_KEY"
TUNNEL_KEY_FILE_VARIABLE = "RELAY_TUNNEL_KEY_FILE"
TUNNEL_KEY_SECRET_VARIABLE = "RELAY_TUNNEL_KEY_SECRET"  # noqa: S105 - a variable's name


@dataclass(frozen=True)
class AccessSettings:
    """What a command line, or a call, says explicitly; None where it says nothing and the environment may."""

    hc: str | None = None
    """Hybrid connection; a connection string may name it as well."""
    connection_string: str | None = field(default=None, repr=False)
    connection_string_file: str | None = None
    connection_string_secret: str | None = None
    """Name of a Key Vault secret."""
    key_vault: str | None = None
    """URL or bare name of the vault that named secrets are in."""
    namespace: str | None = None
    """Host or bare name of a relay's namespace; Entra ID is asked for tokens."""
    identity: str | None = None
    """Which Entra identity to use, see `relay_core.auth.identity`."""
    tunnel_key_file: str | None = None
    tunnel_key_secret: str | None = None
    """Name of a Key Vault secret that holds the tunnel key alone."""
