"""Facts about trusting a relay's certificate."""

import contextlib
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from relay_core.errors import ConfigurationError
from relay_core.net.relay_tls import CA_FILE_VARIABLE, KEY_LOG_VARIABLE, client_tls, unverified_tls
from relay_server.config import certificates
from relay_server.config.model import TlsSettings


@pytest.fixture(scope="module")
def ca_file(tls_directory: Path) -> str:
    return str(certificates.prepare(TlsSettings(directory=tls_directory), ["localhost"]).ca)


def issuers(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


def test_certificates_are_checked() -> None:
    """A context verifies chain and host name, with TLS 1.2 or newer, and refuses to renegotiate."""
    context = client_tls(environ={})
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert (ssl.CERT_REQUIRED, True) == (context.verify_mode, context.check_hostname)
    assert ssl.TLSVersion.TLSv1_2 == context.minimum_version


def test_a_ca_file_adds_to_the_system(ca_file: str) -> None:
    """The file's authority is trusted beside the system's, from an argument or from the environment."""
    system = issuers(client_tls(environ={}))
    assert system + 1 == issuers(client_tls(ca_file, environ={}))
    assert system + 1 == issuers(client_tls(environ={CA_FILE_VARIABLE: ca_file}))


def test_a_ca_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(ConfigurationError, match=r"cannot use the CA file .*none\.pem: No such file"):
        client_tls(str(tmp_path / "none.pem"), environ={})


def test_a_ca_file_without_a_certificate(tmp_path: Path) -> None:
    """A file of another kind is refused."""
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(ConfigurationError, match=r"cannot use the CA file .*ca\.pem: it contains no certificate"):
        client_tls(str(tmp_path / "ca.pem"), environ={})


def named_by_common_name(directory: Path, *alternatives: x509.GeneralName) -> certificates.Certificates:
    """Return a certificate of the relay's own CA whose common name is localhost, with other alternative names."""
    found = certificates.prepare(TlsSettings(directory=directory), [])
    issuer = certificates._load_or_make_ca(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = certificates._builder(subject, issuer.certificate.subject, key, issuer.key, 9)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    certificates._write(found.key, key, found.certificate, builder.sign(issuer.key, hashes.SHA256()))
    return found


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Complete a handshake with localhost, or raise its error."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()


@pytest.mark.parametrize("alternatives", [(), (x509.IPAddress(ip_address("127.0.0.2")),)], ids=["none", "address"])
def test_a_common_name_is_no_host_name(tmp_path: Path, alternatives: tuple[x509.GeneralName, ...]) -> None:
    """A certificate without the host among its alternative names is refused, though its common name is the host."""
    files = named_by_common_name(tmp_path, *alternatives)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client_tls(str(files.ca), environ={}), certificates.server_context(files))


def test_an_alternative_name_is_accepted(tmp_path: Path) -> None:
    """The same certificate with the host among its alternative names is accepted."""
    files = named_by_common_name(tmp_path, x509.DNSName("localhost"))
    shake_hands(client_tls(str(files.ca), environ={}), certificates.server_context(files))


@pytest.mark.parametrize("context", [lambda: client_tls(environ={}), unverified_tls], ids=["verified", "unverified"])
def test_a_key_log_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: Callable[[], ssl.SSLContext]
) -> None:
    """The error names the file, the reason and the variable."""
    monkeypatch.setenv(KEY_LOG_VARIABLE, str(tmp_path / "missing" / "keys.log"))
    with pytest.raises(ConfigurationError, match=r"cannot write TLS keys to .*keys\.log: No such file") as caught:
        context()
    assert KEY_LOG_VARIABLE in caught.value.hint


def test_a_key_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key log that can be written is used, as by other programs."""
    monkeypatch.setenv(KEY_LOG_VARIABLE, str(tmp_path / "keys.log"))
    client_tls(environ={})
    assert (tmp_path / "keys.log").exists()
