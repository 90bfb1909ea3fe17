"""TLS context for connections to a relay."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from relay_core.access_settings import CA_FILE_VARIABLE
from relay_core.errors import ConfigurationError

KEY_LOG_VARIABLE = "SSLKEYLOGFILE"
"""Names a file for the keys of all TLS connections; virus scanners and network analyzers set it for all programs."""


def client_tls(ca_file: str | None = None, *, environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificate authorities and those in `ca_file`.

    Args:
        ca_file: PEM file; defaults to the value of `RELAY_CA_FILE`, if set.
        environ: Defaults to the environment of this process.

    Raises:
        ConfigurationError: The file cannot be read or contains no certificate, or the key log cannot be written.
    """
    path = ca_file or (os.environ if environ is None else environ).get(CA_FILE_VARIABLE)
    context = _new_context()
    if path:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:  # includes ssl.SSLError, whose strerror is OpenSSL's own text
            reason = "it contains no certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigurationError(
                f"cannot use the CA file {path}: {reason}",
                hint=f"check --ca-file or {CA_FILE_VARIABLE}; relay-server prints the path of its CA file when it "
                "starts",
            ) from None
    return context


def unverified_tls() -> ssl.SSLContext:
    """Return a context that accepts any certificate, to show who issued an untrusted one; never send a secret on it."""
    context = _new_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _new_context() -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
    except OSError as error:  # Python opens the key log, and looks for nothing else that must exist
        raise ConfigurationError(
            f"cannot write TLS keys to {os.environ.get(KEY_LOG_VARIABLE)}: {error.strerror}",
            hint=f"unset {KEY_LOG_VARIABLE}, which another program may have set",
        ) from None
    context.hostname_checks_common_name = False  # the field is free text; RFC 9525, section 6.3
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # during a renegotiation, OpenSSL refuses to write
    return context
