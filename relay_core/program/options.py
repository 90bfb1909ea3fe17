"""The options about credentials that relay-client and relay-agent share."""

from __future__ import annotations

import argparse
import logging

from relay_core.auth.settings import (
    CONNECTION_STRING_SECRET_VARIABLE,
    IDENTITY_VARIABLE,
    KEY_VAULT_VARIABLE,
    NAMESPACE_VARIABLE,
    TUNNEL_KEY_FILE_VARIABLE,
    TUNNEL_KEY_SECRET_VARIABLE,
    AccessSettings,
)

__all__ = ["access_settings", "add_access_options"]

logger = logging.getLogger(__name__)


def add_access_options(parser: argparse.ArgumentParser) -> None:
    """Define them; `access_settings` reads the result."""
    group = parser.add_argument_group("credentials", "--explain-auth shows which ones are found, and which one counts.")

    def add(flag: str, metavar: str, text: str) -> None:
        group.add_argument(flag, metavar=metavar, help=text)

    add("--hc", "NAME", "hybrid connection; default: EntityPath of the connection string")
    add("--connection-string-file", "FILE", "file (mode 0600) with the connection string")
    add("--connection-string", "TEXT", "the connection string itself; other users can see it in 'ps'")
    add(
        "--connection-string-secret",
        "NAME",
        f"Key Vault secret with the connection string (default: {CONNECTION_STRING_SECRET_VARIABLE})",
    )
    add("--key-vault", "URL", f"Key Vault of the named secrets, URL or name (default: {KEY_VAULT_VARIABLE})")
    add(
        "--namespace",
        "HOST",
        f"no connection string: the relay's namespace, with tokens of Entra ID (default: {NAMESPACE_VARIABLE})",
    )
    add("--identity", "NAME", f"ask only this Entra identity: dev, prod, azure-cli, ... (default: {IDENTITY_VARIABLE})")
    add("--tunnel-key-file", "FILE", f"file (mode 0600) with the tunnel key (default: {TUNNEL_KEY_FILE_VARIABLE})")
    add("--tunnel-key-secret", "NAME", f"Key Vault secret with the tunnel key (default: {TUNNEL_KEY_SECRET_VARIABLE})")
    add("--ca-file", "FILE", "also trust this CA (default: RELAY_CA_FILE)")
    group.add_argument("--explain-auth", action="store_true", help="show where credentials come from, and end")


def access_settings(arguments: argparse.Namespace) -> AccessSettings:
    """Return what the command line says; a key on it is worth a warning."""
    if arguments.connection_string:
        logger.warning("--connection-string shows the key to every user of this machine; use --connection-string-file")
    return AccessSettings(
        hc=arguments.hc,
        connection_string=arguments.connection_string,
        connection_string_file=arguments.connection_string_file,
        connection_string_secret=arguments.connection_string_secret,
        key_vault=arguments.key_vault,
        namespace=arguments.namespace,
        identity=arguments.identity,
        tunnel_key_file=arguments.tunnel_key_file,
        tunnel_key_secret=arguments.tunnel_key_secret,
    )
