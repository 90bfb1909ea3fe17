"""Explains why a TLS certificate is not trusted and what helps, which depends on the reason."""

from __future__ import annotations

import ssl

from relay_core.errors import UntrustedCertificate

# The numbers are X509_V_ERR_* of OpenSSL 3 (x509_vfy.h), which the ssl module passes on as `verify_code`.
_OUT_OF_DATE = {9, 10}
"""Not yet valid, expired."""
_OTHER_NAME = {62, 64}
"""For another host name, for another IP address."""
_TOO_WEAK = {66, 67, 68}
"""Short key of the server or of its CA, old hash in the CA's signature."""
_NOT_STRICT = range(80, 95)
"""Checked only with `ssl.VERIFY_X509_STRICT`, which `ssl.create_default_context` sets as of Python 3.13."""


def untrusted_certificate(host: str, error: ssl.SSLCertVerificationError, *, ca_hint: str) -> UntrustedCertificate:
    """Return the error for a certificate that the verification refused.

    Args:
        host: Who showed it.
        error: The verification's result.
        ca_hint: What helps if the issuer is unknown.
    """
    return UntrustedCertificate(
        f"the certificate of {host} is not trusted: {error.verify_message}",
        hint=_hint(error.verify_code) or ca_hint,
        elsewhere=True,
    )


def _hint(code: int) -> str:
    """Return what helps, or "" if the issuer is unknown, or for rarer reasons."""
    if code in _OUT_OF_DATE:
        return "check this machine's clock; if it is right, the certificate must be renewed"
    if code in _OTHER_NAME:
        return (
            "use a name that the certificate lists, or have it issued for this name (relay-server: add the name "
            "to 'aliases' in its configuration)"
        )
    if code in _TOO_WEAK:
        return "have it issued anew with a key of at least 2048 bits (RSA) and SHA-256"
    if code in _NOT_STRICT:
        return (
            "Python 3.13 and newer refuse a certificate that violates RFC 5280 in this way, even if its CA is trusted; "
            "have it issued anew as the RFC requires, or run this program with Python 3.12 or older"
        )
    return ""
