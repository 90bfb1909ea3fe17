"""Facts about the reasons for which certificates are refused; each comes from a TLS handshake."""

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from relay_core.untrusted_certificates import untrusted_certificate

CA_HINT = "specify the CA"
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Corp CA")])
SERVER = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay")])


class Company:
    """A CA, and what it issues for the relay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = self._builder(NAME, self.key.public_key(), dt.timedelta(days=9))
        for extension in (constraints, usage):
            builder = builder.add_extension(extension, critical=True)
        ca = builder.add_extension(identifier, critical=False).sign(self.key, hashes.SHA256())
        self.file = folder / "ca.pem"
        self.file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str = "relay.example",
        *,
        ends_in: dt.timedelta = dt.timedelta(days=9),
        key: rsa.RSAPrivateKey | None = None,
        names_its_issuer: bool = True,
    ) -> ssl.SSLContext:
        own = key or ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(SERVER, own.public_key(), ends_in)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        if names_its_issuer:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        file = self.folder / "server.pem"
        file.write_bytes(
            builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # or it would refuse to load a short key
        context.load_cert_chain(file)
        return context

    def _builder(self, subject: x509.Name, public: object, ends_in: dt.timedelta) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.timezone.utc)
        return (
            x509.CertificateBuilder(NAME, subject, public, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + ends_in)
        )


@pytest.fixture
def company(tmp_path: Path) -> Company:
    return Company(tmp_path)


def refusal(server: ssl.SSLContext, ca: Path | None, flags: int = 0) -> tuple[str, str]:
    """Return sentence and hint for what a client finds wrong in a handshake."""
    client = ssl.create_default_context(cafile=ca)
    client.verify_flags |= flags
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="relay.example"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        for _ in range(10):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    error = untrusted_certificate("relay.example", caught.value, ca_hint=CA_HINT)
    return error.sentence, error.hint


def test_an_unknown_issuer(company: Company) -> None:
    """Only a certificate whose issuer is unknown is a reason to specify a CA."""
    sentence, hint = refusal(company.issue(), None)
    assert "the certificate of relay.example is not trusted: unable to get local issuer certificate" == sentence
    assert CA_HINT == hint


def test_an_expired_certificate(company: Company) -> None:
    sentence, hint = refusal(company.issue(ends_in=dt.timedelta(days=-1)), company.file)
    assert "certificate has expired" in sentence
    assert "check this machine's clock" in hint


def test_a_certificate_for_another_name(company: Company) -> None:
    sentence, hint = refusal(company.issue("other.example"), company.file)
    assert "Hostname mismatch" in sentence
    assert "use a name that the certificate lists" in hint


def test_a_short_key(company: Company) -> None:
    server = company.issue(key=rsa.generate_private_key(65537, 1024))
    sentence, hint = refusal(server, company.file)
    assert "EE certificate key too weak" in sentence
    assert "2048 bits" in hint


def test_the_stricter_checks_of_python_313(company: Company) -> None:
    """A trusted CA whose certificates lack an extension is refused by Python 3.13: the CA is not what is wrong."""
    sentence, hint = refusal(company.issue(names_its_issuer=False), company.file, ssl.VERIFY_X509_STRICT)
    assert "Missing Authority Key Identifier" in sentence
    assert "Python 3.13 and newer" in hint
    assert CA_HINT not in hint
