"""Credentials for the relay; the only package that may import azure.*, and only when Azure is needed.

`find_access` returns a hybrid connection's address, a credential for it and the tunnel key from the first configured
source.
"""

from relay_core.auth.entra import EntraCredential
from relay_core.auth.find_access import Access, find_access
from relay_core.auth.sas_credentials import credential_from_connection_string
from relay_core.auth.sources import find_connection_string

__all__ = ["Access", "EntraCredential", "credential_from_connection_string", "find_access", "find_connection_string"]
