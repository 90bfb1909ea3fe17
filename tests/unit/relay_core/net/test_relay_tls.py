"""Facts about trusting a relay's certificate."""

import ssl
from pathlib import Path

import pytest

from relay_core.errors import ConfigurationError
from relay_core.net.relay_tls import CA_FILE_VARIABLE, client_tls
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
