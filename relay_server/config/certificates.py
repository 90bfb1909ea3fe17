"""The relay's certificate: given by the user, or made by a private CA that lives in a directory.

The CA is made once and kept as long as it is valid, so that clients which trust it go on doing so; the server
certificate is made anew when a name is missing or its end is near. Both satisfy `ssl.VERIFY_X509_STRICT`, which
Python 3.13 switches on by default.
"""

from __future__ import annotations

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

__all__ = ["Certificates", "prepare", "server_context", "write_private"]

CA_DAYS = 3650
SERVER_DAYS = 397
"""Longest life of a server certificate that every client accepts."""
RENEW_BEFORE = dt.timedelta(days=30)
BACKDATED = dt.timedelta(days=1)
"""A client's clock may be behind."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """Files to serve with, and the file to trust."""

    certificate: Path
    key: Path
    ca: Path | None
    """None if the user brought the certificate: who signed it is theirs to know."""


@dataclass(frozen=True)
class _Issuer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def prepare(settings: TlsSettings, names: Iterable[str]) -> Certificates:
    """Return the certificate to serve with, and make or renew it if it is ours to make.

    Args:
        settings: Where it is, or shall be.
        names: Host names and IP addresses it must be good for, besides those of this machine's loopback.

    Raises:
        ConfigurationError: a file is missing, or the directory cannot be written.
    """
    if settings.certificate is not None and settings.key is not None:
        return Certificates(settings.certificate, settings.key, None)
    directory = settings.directory or Path("tls")
    wanted = list(dict.fromkeys((*LOCAL_NAMES, *(name.lower() for name in names))))
    found = Certificates(directory / "server.pem", directory / "server.key", directory / "ca.pem")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        issuer = _load_or_make_ca(directory)
        if not _is_usable(found, issuer, wanted):
            _make_server(found, issuer, wanted)
    except OSError as error:
        raise ConfigurationError(f"cannot keep certificates in {directory}: {error.strerror}") from error
    return found


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a TLS 1.2+ server context.

    Raises:
        ConfigurationError: the files do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A passphrase would be asked for on the terminal; the callback's failure turns that into an error.
        context.load_cert_chain(certificates.certificate, certificates.key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "they do not belong together"
        raise ConfigurationError(
            f"cannot use the certificate {certificates.certificate} with its key: {reason}",
            hint="both must be PEM, the key without a passphrase",
        ) from error
    return context


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on, and replace what was there in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
    temporary.replace(path)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _load_or_make_ca(directory: Path) -> _Issuer:
    certificate_file, key_file = directory / "ca.pem", directory / "ca.key"
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        fits = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
        # A server certificate never outlives its CA.
        enough = certificate.not_valid_after_utc - _now() > dt.timedelta(days=SERVER_DAYS)
        if isinstance(key, ec.EllipticCurvePrivateKey) and fits and enough:
            return _Issuer(certificate, key)
    except (FileNotFoundError, ValueError, TypeError):  # missing, damaged, or under a passphrase
        pass
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _make_ca(key)
    write_private(key_file, _key_bytes(key))
    write_private(certificate_file, _certificate_bytes(certificate))
    return _Issuer(certificate, key)


def _make_ca(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay-server private CA")])
    return (
        _builder(name, name, key.public_key(), key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _make_server(files: Certificates, issuer: _Issuer, names: list[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay-server")])
    certificate = (
        _builder(subject, issuer.certificate.subject, key.public_key(), issuer.key.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    write_private(files.key, _key_bytes(key))
    write_private(files.certificate, _certificate_bytes(certificate))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer_public: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now - BACKDATED + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
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
    """Whether the server certificate on disk is this CA's, fits its key, names everything and lasts a while."""
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        certificate.verify_directly_issued_by(issuer.certificate)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - missing, damaged, foreign: whatever is wrong with it, a new one is made
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


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
