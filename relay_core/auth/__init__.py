"""Credentials for the relay; the only package that may import azure.*, and only when Azure is needed.

`find_access` returns a hybrid connection's address, a credential for it and the tunnel key from the first configured
source. `explain_access` lists all sources.
"""

from relay_core.access_settings import AccessSettings, Side
from relay_core.auth.entra import EntraCredential, TokenSource
from relay_core.auth.find_access import Access, Search, explain_access, find_access
from relay_core.auth.sas_credentials import credential_from_connection_string
from relay_core.auth.sources import find_connection_string

__all__ = [
    "Access",
    "AccessSettings",
    "EntraCredential",
    "Search",
    "Side",
    "TokenSource",
    "credential_from_connection_string",
    "explain_access",
    "find_access",
    "find_connection_string",
]
