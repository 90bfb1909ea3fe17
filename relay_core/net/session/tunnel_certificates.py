"""The certificates of both ends of a tunnel, derived from the tunnel key: private keys and TLS contexts.

    tunnel key --HKDF-SHA256(role)--> Ed25519 key --> self-signed certificate, byte for byte the same on both sides

Each side derives its own certificate and the peer's, which is the only one that it trusts. The role is part of the
derivation so that a side's own certificate cannot be reflected to it. Names, dates and serial number are constants,
so validation does not depend on a clock; host names are not checked because the exact certificate is.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from relay_core.hyco.connection_string import TUNNEL_KEY_BYTES
from relay_core.tunnel.outcomes import Role

_INFO = b"relay-debug tunnel v1 "
"""HKDF info, followed by the role; any change to the derivation requires a new version number."""
_NOT_BEFORE = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NOT_AFTER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.timezone.utc)
"""The date that means "no expiration" (RFC 5280, section 4.1.2.5): a key is valid as long as both sides have it."""


class TunnelIdentity:
    """Certificates and TLS context of one side; create it once per tunnel key and use it for all channels.

    Args:
        role: The role of this side.
        tunnel_key: 32 bytes.

    Raises:
        ValueError: the key has a different length.
    """

    def __init__(self, role: Role, tunnel_key: bytes) -> None:
        if len(tunnel_key) != TUNNEL_KEY_BYTES:
            raise ValueError(f"a tunnel key is {TUNNEL_KEY_BYTES} bytes long")
        self.role = role
        key = _derive_key(tunnel_key, role)
        self.certificate = _certificate(key, role)
        """DER."""
        self.peer_certificate = _certificate(_derive_key(tunnel_key, role.other), role.other)
        """DER; the only certificate that is accepted."""
        self.context = _context(role, key, self.certificate, self.peer_certificate)


def _derive_key(tunnel_key: bytes, role: Role) -> Ed25519PrivateKey:
    info = _INFO + role.value.encode()
    seed = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(tunnel_key)
    return Ed25519PrivateKey.from_private_bytes(seed)


def _certificate(key: Ed25519PrivateKey, role: Role) -> bytes:
    """Return the DER certificate. It is deterministic: all fields are constant, and so are Ed25519 signatures."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"relay-debug {role.value}")])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=_NOT_BEFORE,
        not_valid_after=_NOT_AFTER,
    )
    return builder.sign(key, None).public_bytes(serialization.Encoding.DER)


def _context(role: Role, key: Ed25519PrivateKey, certificate: bytes, peer_certificate: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role is Role.AGENT else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the exact certificate is pinned instead
    context.verify_mode = ssl.CERT_REQUIRED
    # OP_NO_TICKET disables stateless tickets only; in TLS 1.3 the server would still send stateful ones.
    context.options |= ssl.OP_NO_TICKET
    if role is Role.AGENT:
        context.num_tickets = 0
    context.load_verify_locations(cadata=peer_certificate)
    pem = (
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + ssl.DER_cert_to_PEM_cert(certificate).encode()
    )
    with _private_file(pem) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[Path]:
    """Provide content as a file, because `ssl` loads keys only from files: a memfd, or else a file with mode 0600."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        fd = os.memfd_create("relay-debug")
        path, on_disk = Path(f"/proc/self/fd/{fd}"), False
    else:
        fd, name = tempfile.mkstemp(prefix="relay-debug-")
        path, on_disk = Path(name), True
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if on_disk:
            path.unlink()
