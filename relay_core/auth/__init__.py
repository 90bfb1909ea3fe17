"""Credentials: the only package that may import azure.*, and only when a token must come from there."""

from relay_core.auth.sas import credential_from_connection_string
from relay_core.auth.sources import find_connection_string

__all__ = ["credential_from_connection_string", "find_connection_string"]
