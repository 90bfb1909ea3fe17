"""The relay's TLS certificate: supplied by the user, or issued by a private CA in a directory.

The CA is created once and kept while it is valid, so that clients need to trust it only once. A new server certificate
is issued when the current one lacks a name or is about to expire. Both certificates satisfy `ssl.VERIFY_X509_STRICT`,
which Python 3.13 enables by default.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from relay_core.errors import ConfigurationError
from relay_server.config.model import TlsSettings

CA_DAYS = 3650
SERVER_DAYS = 397
"""Validity of a server certificate that all clients accept; some clients limit the validity to 398 days."""
RENEW_BEFORE = dt.timedelta(days=30)
BACKDATED = dt.timedelta(days=1)
"""Offset of the start of validity, for clients whose clock is slow."""
_Key = ec.EllipticCurvePrivateKey
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """Files of the server certificate and its CA."""

    certificate: Path
    key: Path
    ca: Path | None
    """None if the user supplied the server certificate."""


@dataclass(frozen=True)
class _Issuer:
    certificate: x509.Certificate
    key: _Key


def files_of(settings: TlsSettings) -> Certificates:
    """Return where the server's certificate is, or will be."""
    if settings.certificate is not None and settings.key is not None:
        return Certificates(settings.certificate, settings.key, None)
    directory = settings.directory or Path("tls")
    return Certificates(directory / "server.pem", directory / "server.key", directory / "ca.pem")


def prepare(settings: TlsSettings, names: Iterable[str]) -> Certificates:
    """Return the server's certificate; create or renew it if the user did not supply one.

    Args:
        settings: Location of the certificate.
        names: Host names and IP addresses that it must contain, in addition to the loopback addresses.

    Raises:
        ConfigurationError: The directory cannot be read or written.
    """
    found = files_of(settings)
    if found.ca is None:
        return found
    directory = found.ca.parent
    wanted = list(dict.fromkeys((*LOCAL_NAMES, *(name.lower() for name in names))))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        issuer = _load_or_make_ca(directory)
        if not _is_usable(found, issuer, wanted):
            _make_server(found, issuer, wanted)
    except OSError as error:
        raise ConfigurationError(f"cannot store certificates in {directory}: {error.strerror}") from error
    return found


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a TLS 1.2+ server context.

    Raises:
        ConfigurationError: The files are invalid, or certificate and key do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # during a renegotiation, OpenSSL refuses to write
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a callback, OpenSSL would ask for a passphrase on the terminal.
        context.load_cert_chain(certificates.certificate, certificates.key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "they do not match"
        raise ConfigurationError(
            f"cannot use the certificate {certificates.certificate} with its key: {reason}",
            hint="use PEM files, and a key without a passphrase",
        ) from error
    return context


def write_private(path: Path, data: bytes) -> None:
    """Write a file with mode 0600, atomically replacing an existing one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
    temporary.replace(path)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _load_or_make_ca(directory: Path) -> _Issuer:
    certificate_file, key_file = directory / "ca.pem", directory / "ca.key"
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):  # missing, damaged, or encrypted
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        # A server certificate must not outlive its CA.
        valid_long_enough = certificate.not_valid_after_utc - _now() > dt.timedelta(days=SERVER_DAYS)
        if (
            isinstance(key, ec.EllipticCurvePrivateKey)
            and key.public_key() == certificate.public_key()
            and valid_long_enough
        ):
            return _Issuer(certificate, key)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _make_ca(key)
    _write(key_file, key, certificate_file, certificate)
    return _Issuer(certificate, key)


def _make_ca(key: _Key) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay-server private CA")])
    return (
        _builder(name, name, key, key, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _make_server(files: Certificates, issuer: _Issuer, names: list[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay-server")])
    certificate = (
        _builder(subject, issuer.certificate.subject, key, issuer.key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    _write(files.key, key, files.certificate, certificate)


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, issuer_key: _Key, days: int) -> x509.CertificateBuilder:
    now, public = _now(), key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now - BACKDATED + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _is_usable(files: Certificates, issuer: _Issuer, names: list[str]) -> bool:
    """Return True if the server certificate is signed by the CA, matches its key, has all names and is not expiring."""
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        certificate.verify_directly_issued_by(issuer.certificate)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - whatever is wrong with the certificate, a new one is created
        return False
    return (
        key.public_key() == certificate.public_key()
        and set(map(_alternative, names)) <= set(alternative)
        and certificate.not_valid_after_utc - _now() > RENEW_BEFORE
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(key_file: Path, key: _Key, certificate_file: Path, certificate: x509.Certificate) -> None:
    pem, unencrypted = serialization.Encoding.PEM, serialization.NoEncryption()
    write_private(key_file, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unencrypted))
    write_private(certificate_file, certificate.public_bytes(pem))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
