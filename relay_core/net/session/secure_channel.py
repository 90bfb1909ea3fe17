"""Mutual TLS 1.3 inside a transport, with the certificates of `tunnel_certificates`.

The peer's certificate is compared byte for byte after the handshake. Session tickets are disabled, so each transport
has its own keys (forward secrecy), and a tunnel key that leaks later cannot decrypt recorded traffic.

    HANDSHAKE --handshake done--> OPEN --close_notify, close()--> CLOSED
        |                           |
        +--- any error     --------+--> FAILED      (`data_to_send` still has the alert for the peer)

TLS itself is `relay_core.net.tls.TlsMachine`; this module adds the pinning, and an error message for the most likely
mistake: only one side has a tunnel key. The first byte shows this, because no first frame of the tunnel protocol looks
like a TLS record; see `relay_core.tunnel.frames`.

Why TLS and not another protocol, with the alternatives and their measured speed, is in docs/decisions/0004. Here it
matters that the state machine is OpenSSL's, and only three things are added around it. What is ugly and stays: TLS 1.3
lets a client finish its handshake before the server has judged the client's certificate, so a wrong key can show itself
as an alert later. `_peer_verified_us` remembers whether an alert can still mean that. Waiting for one more round trip
would make it certain, and every resume slower by one.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Iterable

from relay_core.errors import ConfigurationError, ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tls import TlsMachine
from relay_core.tunnel.frames import FIRST_FRAMES, Buffer
from relay_core.tunnel.messages import Refused
from relay_core.tunnel.outcomes import Refusal, Role

NO_TUNNEL_KEY = (
    "no TunnelKey: the relay operator, and anyone with the relay's keys, can read the traffic and connect to targets; "
    "add ;TunnelKey=<32 bytes encoded as base64> to the connection strings on both sides, or set RELAY_TUNNEL_KEY"
)
"""The warning for a side without a tunnel key."""
_TLS_RECORDS = frozenset({0x14, 0x15, 0x16, 0x17})
"""First bytes of TLS records: change_cipher_spec, alert, handshake, application_data (RFC 8446, section 5.1)."""


class TunnelKeyMissing(ConfigurationError):
    """Only one side has a tunnel key.

    Args:
        role: The side without one.
    """

    def __init__(self, role: Role) -> None:
        super().__init__(
            f"the {role.other.value} has a tunnel key but the {role.value} has none",
            hint=f"set the same TunnelKey for the {role.value} (connection string or RELAY_TUNNEL_KEY)",
        )
        self.role = role


class WrongTunnelKey(ConfigurationError):
    """The two sides have different tunnel keys."""

    def __init__(self) -> None:
        super().__init__(
            "client and agent have different tunnel keys", hint="set the same TunnelKey on both sides, and restart both"
        )


class ChannelState(enum.Enum):
    """The state of a channel; the module's docstring has the transitions."""

    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


# On Python 3.11, each access to a member of an enumeration calls a function, and so does its hash.
_HANDSHAKE, _OPEN, _CLOSED = ChannelState.HANDSHAKE, ChannelState.OPEN, ChannelState.CLOSED


class SecureChannel:
    """One TLS connection inside one transport; the client sends first.

    Args:
        identity: Role and certificates of this side.
    """

    def __init__(self, identity: TunnelIdentity) -> None:
        self.state = ChannelState.HANDSHAKE
        self._identity = identity
        self._reply = b""
        """An unencrypted refusal, for a peer that does not use TLS."""
        self._tls = TlsMachine(identity.context, server_side=identity.role is Role.AGENT)
        self._first_byte_checked = False
        self._peer_verified_us = False
        """True if the peer has sent application data, and so has accepted this side's certificate."""
        if identity.role is Role.CLIENT:
            self._do_handshake()

    @property
    def is_closed(self) -> bool:
        """Whether a close_notify has ended the channel; without one, the end may be a truncation (RFC 8446, 6.1)."""
        return self.state is _CLOSED

    def data_to_send(self) -> bytes:
        """Return bytes to send (handshake messages, alerts, or an unencrypted refusal); call it after an error too."""
        reply, self._reply = self._reply, b""
        return reply + self._tls.data_to_send()

    def feed(self, data: Buffer) -> bytes:
        """Decrypt received bytes and return the plaintext; call `data_to_send` after that.

        Raises:
            TunnelKeyMissing: the peer does not encrypt.
            WrongTunnelKey: the peer has a different key.
            ProtocolError: the bytes are not TLS, or were modified in transit.
        """
        if not data or not (self.state is _OPEN or self.state is _HANDSHAKE):
            return b""
        # OpenSSL reports plain frames only as "wrong version number", which would hide that a tunnel key is missing.
        if not self._first_byte_checked:
            self._check_first_byte(data[0])
        self._tls.receive_data(data)
        if self.state is _HANDSHAKE:
            self._do_handshake()
        return self._read() if self.state is _OPEN else b""

    def seal(self, buffers: Iterable[Buffer]) -> bytes:
        """Encrypt buffers and return all bytes to send. The buffers are joined first to fill the TLS records.

        Raises:
            ConnectionLost: the channel is not open.
        """
        if self.state is not _OPEN:
            raise ConnectionLost("the encrypted channel is not open")
        # One record for each small frame would cost 22 bytes and one OpenSSL call each.
        plaintext = b"".join(buffers)
        if plaintext:
            self._tls.write(plaintext)
        return self.data_to_send()

    def close(self) -> bytes:
        """Return a close_notify to send, which lets the peer distinguish an orderly end from a truncation."""
        if self.state is ChannelState.OPEN:
            self.state = ChannelState.CLOSED
            self._tls.close()
        return self.data_to_send()

    def _check_first_byte(self, first: int) -> None:
        self._first_byte_checked = True
        if first in _TLS_RECORDS:
            return
        self.state = ChannelState.FAILED
        self._tls.data_to_send()  # a peer without TLS cannot read TLS handshake messages or alerts
        if first in FIRST_FRAMES:
            error = TunnelKeyMissing(self._identity.role.other)
            if self._identity.role is Role.AGENT:
                self._reply = Refused(Refusal.KEY_MISMATCH, error.sentence).encode()
            raise error
        raise ProtocolError(f"the {self._identity.role.other.value} uses neither TLS nor the tunnel protocol")

    def _do_handshake(self) -> None:
        try:
            if not self._tls.shake_hands():
                return
        except ssl.SSLError as error:
            raise self._fail(error) from error
        # OpenSSL accepts any chain that ends at the trusted certificate; only that exact certificate is accepted here.
        if self._tls.peer_certificate != self._identity.peer_certificate:
            self.state = ChannelState.FAILED
            raise WrongTunnelKey
        self.state = ChannelState.OPEN

    def _read(self) -> bytes:
        try:
            plaintext = self._tls.read()
        except ssl.SSLError as error:
            raise self._fail(error) from error
        if self._tls.close_received:
            self.state = ChannelState.CLOSED
        self._peer_verified_us = self._peer_verified_us or bool(plaintext)
        return plaintext

    def _fail(self, error: ssl.SSLError) -> RelayDebugError:
        """Return this package's error for an SSLError.

        A TLS 1.3 client completes its handshake before the server has verified the client's certificate (RFC 8446,
        section 2). Until the first application data, an alert can therefore mean that the server rejected the
        certificate.
        """
        self.state = ChannelState.FAILED
        reason = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError) or (not self._peer_verified_us and "ALERT" in reason):
            return WrongTunnelKey()
        return ProtocolError(f"the encrypted channel failed: {reason or 'unknown TLS error'}")
