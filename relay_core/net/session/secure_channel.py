"""TLS 1.3 inside a transport, mutual, with certificates that both sides derive from the tunnel key.

    tunnel key --HKDF-SHA256(role)--> Ed25519 key --> self-signed certificate, the same bytes wherever it is made

Each side has its own certificate and knows the other's beforehand: it is the only trusted one, and is compared byte
for byte after the handshake. The role in the derivation keeps one side from being shown its own certificate. Names,
dates and serial number are constants, so nothing depends on a clock; names are not checked because the exact
certificate is. No tickets: each transport has keys of its own, and whoever learns the tunnel key later cannot read what
was recorded before.

    HANDSHAKE --handshake done--> OPEN --close_notify, close()--> CLOSED
        |                           |
        +--- any error     --------+--> FAILED      (`data_to_send` still has the alert for the peer)

The I/O-free core of TLS is `ssl.MemoryBIO`; this file adds the key, the pinning, and an answer to the most likely
mistake: only one side has a tunnel key. That shows in the first byte, because no first frame of the tunnel looks like a
TLS record; see `relay_core.tunnel.frames`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from relay_core.errors import ConfigurationError, ConnectionLost, ProtocolError, RelayDebugError
from relay_core.tunnel.frames import FIRST_FRAMES, Buffer
from relay_core.tunnel.messages import Refused
from relay_core.tunnel.outcomes import Refusal, Role

__all__ = ["NO_TUNNEL_KEY", "ChannelState", "SecureChannel", "TunnelIdentity", "TunnelKeyMissing", "WrongTunnelKey"]

NO_TUNNEL_KEY = (
    "no TunnelKey: the relay, and whoever holds its keys, can read and use what passes through; "
    "add ;TunnelKey=<32 bytes of base64> to the connection strings of both sides, or set RELAY_TUNNEL_KEY"
)
"""What a side without one warns of."""
TUNNEL_KEY_SIZE = 32
_INFO = b"relay-debug tunnel v1 "
"""HKDF info, followed by the role; a new derivation gets a new number."""
_NOT_BEFORE = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NOT_AFTER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.timezone.utc)
"""RFC 5280's date for "no end": a key is valid for as long as both sides hold it."""
_TLS_RECORDS = frozenset({0x14, 0x15, 0x16, 0x17})
"""First bytes of TLS: change_cipher_spec, alert, handshake, application data."""
RECORD_SIZE = 16 * 1024
"""Plaintext of a TLS record at most. A read returns one record, and a larger buffer costs a third of the speed."""


class TunnelKeyMissing(ConfigurationError):
    """Only one side has a tunnel key.

    Args:
        role: The side without one.
    """

    def __init__(self, role: Role) -> None:
        super().__init__(
            f"the {role.other.value} has a tunnel key and the {role.value} has none",
            hint=f"give the {role.value} the same TunnelKey (connection string or RELAY_TUNNEL_KEY)",
        )
        self.role = role


class WrongTunnelKey(ConfigurationError):
    """Both sides have a tunnel key, and not the same."""

    def __init__(self) -> None:
        super().__init__(
            "client and agent have different tunnel keys", hint="give both the same TunnelKey and start them again"
        )


class ChannelState(enum.Enum):
    """Where a channel stands."""

    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


class TunnelIdentity:
    """What a tunnel key makes of one side; build it once per key and make every channel from it.

    Args:
        role: This side.
        tunnel_key: 32 bytes.

    Raises:
        ValueError: the key has another length.
    """

    def __init__(self, role: Role, tunnel_key: bytes) -> None:
        if len(tunnel_key) != TUNNEL_KEY_SIZE:
            raise ValueError(f"a tunnel key has {TUNNEL_KEY_SIZE} bytes")
        self.role = role
        key = _derive_key(tunnel_key, role)
        self.certificate = _certificate(key, role)
        """DER."""
        self.peer_certificate = _certificate(_derive_key(tunnel_key, role.other), role.other)
        """DER; the only one that is accepted."""
        self.context = _context(role, key, self.certificate, self.peer_certificate)

    def __repr__(self) -> str:
        return f"<TunnelIdentity {self.role.value}>"


class SecureChannel:
    """One TLS connection inside one transport; the client begins.

    Args:
        identity: Who this side is.
    """

    def __init__(self, identity: TunnelIdentity) -> None:
        self.state = ChannelState.HANDSHAKE
        self._identity = identity
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._reply = b""
        """A refusal in the clear, for a peer that does not speak TLS."""
        self._ssl = identity.context.wrap_bio(self._incoming, self._outgoing, server_side=identity.role is Role.AGENT)
        self._heard = False
        self._proven = False
        """The peer has sent application data, so it has accepted our certificate."""
        if identity.role is Role.CLIENT:
            self._shake_hands()

    def __repr__(self) -> str:
        return f"<SecureChannel {self._identity.role.value} {self.state.value}>"

    def data_to_send(self) -> bytes:
        """Return what has to leave: handshake messages, alerts, or a refusal in the clear; also after an error."""
        reply, self._reply = self._reply, b""
        return reply + self._outgoing.read()

    def feed(self, data: Buffer) -> bytes:
        """Take ciphertext and return the plaintext that it completes; then look at `data_to_send`.

        Raises:
            TunnelKeyMissing: the peer does not encrypt.
            WrongTunnelKey: the peer has another key.
            ProtocolError: the peer sends something that is no TLS, or that was changed on the way.
        """
        if not data or self.state in {ChannelState.CLOSED, ChannelState.FAILED}:
            return b""
        if not self._heard:
            self._check_first(data[0])
        self._incoming.write(data)
        if self.state is ChannelState.HANDSHAKE:
            self._shake_hands()
        return self._read() if self.state is ChannelState.OPEN else b""

    def feed_eof(self) -> None:
        """The transport has ended.

        Raises:
            ConnectionLost: the peer had not closed the channel, so more may have been on its way.
        """
        if self.state in {ChannelState.HANDSHAKE, ChannelState.OPEN}:
            during = " during the encryption handshake" if self.state is ChannelState.HANDSHAKE else ""
            self.state = ChannelState.FAILED
            raise ConnectionLost(f"the connection ended without a goodbye{during}")

    def seal(self, buffers: Iterable[Buffer]) -> bytes:
        """Encrypt and return everything that has to leave; joined first, because records should be full.

        Raises:
            ConnectionLost: the channel is not open.
        """
        if self.state is not ChannelState.OPEN:
            raise ConnectionLost("the encrypted channel is not open")
        plaintext = b"".join(buffers)
        if plaintext:
            self._ssl.write(plaintext)
        return self.data_to_send()

    def close(self) -> bytes:
        """Say goodbye, so that the peer can tell an end from a cut; returns what has to leave."""
        if self.state is ChannelState.OPEN:
            self.state = ChannelState.CLOSED
            with contextlib.suppress(ssl.SSLError):  # it wants to wait for the peer's goodbye; ours has left
                self._ssl.unwrap()
        return self.data_to_send()

    def _check_first(self, first: int) -> None:
        self._heard = True
        if first in _TLS_RECORDS:
            return
        self.state = ChannelState.FAILED
        self._outgoing.read()
        if first in FIRST_FRAMES:
            error = TunnelKeyMissing(self._identity.role.other)
            if self._identity.role is Role.AGENT:
                self._reply = Refused(Refusal.KEY_MISMATCH, error.sentence).encode()
            raise error
        raise ProtocolError(f"the {self._identity.role.other.value} speaks neither TLS nor the tunnel protocol")

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._failed(error) from error
        if self._ssl.getpeercert(binary_form=True) != self._identity.peer_certificate:
            self.state = ChannelState.FAILED
            raise WrongTunnelKey
        self.state = ChannelState.OPEN

    def _read(self) -> bytes:
        records: list[bytes] = []
        try:
            while self._incoming.pending:
                record = self._ssl.read(RECORD_SIZE)
                if not record:
                    self.state = ChannelState.CLOSED
                    break
                records.append(record)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._failed(error) from error
        self._proven = self._proven or bool(records)
        return b"".join(records)

    def _failed(self, error: ssl.SSLError) -> RelayDebugError:
        """Say what an SSLError means here.

        A TLS 1.3 client is done before the server has looked at its certificate, so until the first application data
        an alert may still be the server's verdict.
        """
        self.state = ChannelState.FAILED
        reason = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError) or (not self._proven and "ALERT" in reason):
            return WrongTunnelKey()
        return ProtocolError(f"the encrypted channel is broken: {reason or 'unknown TLS error'}")


def _derive_key(tunnel_key: bytes, role: Role) -> Ed25519PrivateKey:
    info = _INFO + role.value.encode()
    seed = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(tunnel_key)
    return Ed25519PrivateKey.from_private_bytes(seed)


def _certificate(key: Ed25519PrivateKey, role: Role) -> bytes:
    """Return the DER certificate; every field is fixed and Ed25519 signs without randomness."""
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
    """Give `ssl` the path it insists on: memory where the system can name it, else a 0600 file, gone afterwards."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        fd = os.memfd_create("relay-debug", os.MFD_CLOEXEC)
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
