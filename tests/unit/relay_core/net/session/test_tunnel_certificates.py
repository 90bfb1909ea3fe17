"""Facts about the certificates of both ends of a tunnel."""

import hashlib
import tempfile

import pytest
from cryptography import x509

from relay_core.net.session import tunnel_certificates
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.tunnel.outcomes import Role

KEY = bytes(range(32))
CLIENT = TunnelIdentity(Role.CLIENT, KEY)
AGENT = TunnelIdentity(Role.AGENT, KEY)
OTHER_CLIENT = TunnelIdentity(Role.CLIENT, bytes(32))


def test_both_sides_derive_the_same_certificates():
    """Each side has what the other expects, and the two roles have different ones."""
    assert CLIENT.certificate == AGENT.peer_certificate
    assert AGENT.certificate == CLIENT.peer_certificate
    assert CLIENT.certificate != AGENT.certificate
    assert OTHER_CLIENT.certificate != CLIENT.certificate


@pytest.mark.parametrize(
    ("identity", "digest"),
    [
        (CLIENT, "69331aa8b3632460a1fb53470ce835d0f8de401df11a574a03e3cb6045195afa"),
        (AGENT, "3f0ec0ccf4321b7d7cc000bd2a2cbb2631b0642b8ed5a0ef6c8c5b2c0d5cdf39"),
    ],
)
def test_certificates_are_the_same_everywhere(identity, digest):
    """The bytes depend only on key and role; if they changed, old and new versions could not connect."""
    assert hashlib.sha256(identity.certificate).hexdigest() == digest


def test_a_certificate_needs_no_clock_and_has_no_secrets():
    """It never expires, and has serial number 1 and the name of its role."""
    certificate = x509.load_der_x509_certificate(CLIENT.certificate)
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 9999
    assert certificate.serial_number == 1
    assert certificate.subject.rfc4514_string() == "CN=relay-debug client"


def test_a_private_key_file_is_for_its_owner_only(monkeypatch, tmp_path):
    """If a file is needed, it has mode 0600 while it exists."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(tunnel_certificates.os, "memfd_create", raising=False)
    with tunnel_certificates._private_file(b"secret") as path:
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_of_another_length_is_refused():
    """32 bytes, no more and no less."""
    with pytest.raises(ValueError, match="32 bytes"):
        TunnelIdentity(Role.AGENT, b"short")
