import datetime as dt
import socket
import ssl
import threading

import pytest
from cryptography import x509

from relay_core.errors import ConfigurationError
from relay_server.config import certificates
from relay_server.config.model import TlsSettings

DAY = dt.timedelta(days=1)


@pytest.fixture
def settings(tmp_path):
    return TlsSettings(directory=tmp_path / "tls")


def handshake(made, name):
    """Do a TLS handshake over a socket pair, as strict as Python 3.13 does by default; return the client's view."""
    server_side, client_side = socket.socketpair()
    context = ssl.create_default_context(cafile=str(made.ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])

    def serve():
        try:
            with certificates.server_context(made).wrap_socket(server_side, server_side=True) as wrapped:
                wrapped.recv(1)
        except (ssl.SSLError, ConnectionError):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(client_side, server_hostname=name) as wrapped:
            return wrapped.version(), wrapped.selected_alpn_protocol()
    finally:
        client_side.close()
        thread.join()
        server_side.close()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "relay.test", "10.1.2.3"])
def test_the_certificate_verifies_strictly_for_every_name(settings, name):
    """Loopback names and the namespace's names verify with VERIFY_X509_STRICT, over TLS 1.3 with http/1.1."""
    made = certificates.prepare(settings, ["relay.test", "10.1.2.3"])
    assert ("TLSv1.3", "http/1.1") == handshake(made, name)


def test_other_names_do_not_verify(settings):
    """A name that was not asked for is refused by the client."""
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates.prepare(settings, []), "relay.test")


def test_keys_are_private(settings):
    """Directory and keys are readable by their owner only."""
    made = certificates.prepare(settings, [])
    assert 0o700 == settings.directory.stat().st_mode & 0o777
    for file in (made.key, settings.directory / "ca.key"):
        assert 0o600 == file.stat().st_mode & 0o777


def test_a_good_certificate_is_used_again(settings):
    """A second start changes no file."""
    made = certificates.prepare(settings, ["relay.test"])
    before = {file: file.read_bytes() for file in settings.directory.iterdir()}
    assert made == certificates.prepare(settings, ["relay.test"])
    assert before == {file: file.read_bytes() for file in settings.directory.iterdir()}


def test_a_new_name_makes_a_new_certificate_from_the_same_ca(settings):
    """Clients still trust the CA after a name is added."""
    made = certificates.prepare(settings, [])
    ca, server = made.ca.read_bytes(), made.certificate.read_bytes()
    certificates.prepare(settings, ["relay.test"])
    assert ca == made.ca.read_bytes()
    assert server != made.certificate.read_bytes()
    assert handshake(made, "relay.test")


@pytest.mark.parametrize(
    ("days", "same_server", "same_ca"), [(360, True, True), (370, False, True), (3300, False, False)]
)
def test_certificates_are_renewed_before_they_end(settings, monkeypatch, days, same_server, same_ca):
    """The server certificate is renewed in its last 30 days, and the CA when it could not outlive a new one."""
    made = certificates.prepare(settings, [])
    ca, server = made.ca.read_bytes(), made.certificate.read_bytes()
    later = dt.datetime.now(dt.timezone.utc) + days * DAY
    monkeypatch.setattr(certificates, "_now", lambda: later)
    certificates.prepare(settings, [])
    assert (same_server, same_ca) == (server == made.certificate.read_bytes(), ca == made.ca.read_bytes())
    renewed = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    assert renewed.not_valid_after_utc <= x509.load_pem_x509_certificate(made.ca.read_bytes()).not_valid_after_utc


@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "server.pem", "server.key"])
@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_damaged_files_are_made_anew(settings, name, content):
    """Whatever is missing or damaged is replaced by something that works."""
    made = certificates.prepare(settings, [])
    file = settings.directory / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    certificates.prepare(settings, [])
    assert handshake(made, "localhost")


def test_a_brought_certificate_is_used_as_it_is(settings):
    """A user's own certificate is served, and the result names no CA to trust."""
    made = certificates.prepare(settings, [])
    brought = certificates.prepare(TlsSettings(certificate=made.certificate, key=made.key), ["whatever"])
    assert certificates.Certificates(made.certificate, made.key, None) == brought
    certificates.server_context(brought)


def test_files_that_do_not_fit_are_a_configuration_error(settings, tmp_path):
    """A wrong or missing key is reported with the certificate's file name."""
    made = certificates.prepare(settings, [])
    for key in (settings.directory / "ca.key", tmp_path / "missing"):
        with pytest.raises(ConfigurationError, match=r"server\.pem"):
            certificates.server_context(certificates.Certificates(made.certificate, key, None))


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path):
    """A file in the directory's place is reported, not raised."""
    (tmp_path / "tls").write_text("")
    with pytest.raises(ConfigurationError, match="cannot store certificates"):
        certificates.prepare(TlsSettings(directory=tmp_path / "tls"), [])
