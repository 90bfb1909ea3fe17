import contextlib
import ssl
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.net.session import tunnel_certificates
from relay_core.net.session.secure_channel import ChannelState, SecureChannel, TunnelKeyMissing, WrongTunnelKey
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.tunnel.frames import HEADER_SIZE
from relay_core.tunnel.handshake import HelloHandshake
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.messages import Refused
from relay_core.tunnel.outcomes import Refusal, Role
from relay_core.tunnel.session_table import AgentHandshake, SessionTable
from tests.support.sessions.tunnel_link import ENTROPY

KEY = bytes(range(32))
CLIENT = TunnelIdentity(Role.CLIENT, KEY)
AGENT = TunnelIdentity(Role.AGENT, KEY)
OTHER_CLIENT = TunnelIdentity(Role.CLIENT, bytes(32))
OTHER_AGENT = TunnelIdentity(Role.AGENT, bytes(32))


def shake_hands(client: SecureChannel, agent: SecureChannel) -> None:
    while (up := client.data_to_send()) or (down := agent.data_to_send()):
        assert agent.feed(up) == b""
        if not up:
            assert client.feed(down) == b""


def open_pair() -> tuple[SecureChannel, SecureChannel]:
    client, agent = SecureChannel(CLIENT), SecureChannel(AGENT)
    shake_hands(client, agent)
    assert client.state is agent.state is ChannelState.OPEN
    return client, agent


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_private_key_leaves_no_file(monkeypatch, tmp_path, in_memory):
    """With or without memfd, no file is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(tunnel_certificates.os, "memfd_create", raising=False)
    identity = TunnelIdentity(Role.AGENT, KEY)
    assert list(tmp_path.iterdir()) == []
    shake_hands(SecureChannel(CLIENT), SecureChannel(identity))


def test_it_is_tls_1_3_without_tickets():
    """Nothing older is offered, and no key outlives its transport."""
    client, _ = open_pair()
    assert client._tls.ssl_object.version() == "TLSv1.3"
    for identity in (CLIENT, AGENT):
        assert identity.context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert identity.context.verify_mode is ssl.CERT_REQUIRED
        assert identity.context.options & ssl.OP_NO_TICKET
    assert AGENT.context.num_tickets == 0
    assert not client._tls.ssl_object.session_reused


@given(
    messages=st.lists(st.lists(st.binary(max_size=40_000), max_size=3), max_size=4),
    cuts=st.lists(st.integers(1, 50_000), max_size=6),
)
def test_plaintext_survives_any_cutting(messages, cuts):
    """What is sealed on one side comes out on the other, however the ciphertext is cut, in both directions."""
    for sender, receiver in (open_pair(), open_pair()[::-1]):
        ciphertext = b"".join(sender.seal(message) for message in messages)
        plaintext = b""
        for size in [*cuts, len(ciphertext)]:
            plaintext += receiver.feed(ciphertext[:size])
            ciphertext = ciphertext[size:]
        plaintext += receiver.feed(ciphertext)
        assert plaintext == b"".join(piece for message in messages for piece in message)


def test_a_handshake_may_arrive_byte_by_byte():
    """It works with any chunk sizes, and application data may follow its last message."""
    client, agent = SecureChannel(CLIENT), SecureChannel(AGENT)
    for _ in range(3):
        for byte in client.data_to_send():
            agent.feed(bytes([byte]))
        for byte in agent.data_to_send():
            client.feed(bytes([byte]))
    assert client.state is agent.state is ChannelState.OPEN
    client, agent = SecureChannel(CLIENT), SecureChannel(AGENT)
    agent.feed(client.data_to_send())
    client.feed(agent.data_to_send())
    assert agent.feed(client.seal([b"HELLO"])) == b"HELLO"


@pytest.mark.parametrize(("mine", "theirs"), [(CLIENT, OTHER_AGENT), (OTHER_CLIENT, AGENT)])
def test_both_sides_report_a_wrong_key(mine, theirs):
    """Both sides report that the keys differ, whichever detects it first."""
    client, agent = SecureChannel(mine), SecureChannel(theirs)
    agent.feed(client.data_to_send())
    with pytest.raises(WrongTunnelKey, match="different tunnel keys"):
        client.feed(agent.data_to_send())
    assert client.state is ChannelState.FAILED
    with pytest.raises(WrongTunnelKey):
        agent.feed(client.data_to_send())
    assert agent.state is ChannelState.FAILED
    assert agent.feed(b"more") == b""


def test_a_client_reports_a_refusal_after_its_handshake():
    """A client whose handshake completes before the agent has verified its certificate still gets WrongTunnelKey."""
    half = TunnelIdentity(Role.CLIENT, KEY)
    half.context = tunnel_certificates._context(
        Role.CLIENT,
        tunnel_certificates._derive_key(bytes(32), Role.CLIENT),
        OTHER_CLIENT.certificate,
        AGENT.certificate,
    )
    client, agent = SecureChannel(half), SecureChannel(AGENT)
    agent.feed(client.data_to_send())
    client.feed(agent.data_to_send())
    assert client.state is ChannelState.OPEN
    with pytest.raises(WrongTunnelKey):
        agent.feed(client.seal([b"HELLO"]))
    with pytest.raises(WrongTunnelKey):
        client.feed(agent.data_to_send())


def test_a_side_is_not_fooled_by_its_own_certificate():
    """Reflection: a peer with the client's certificate cannot act as the agent."""
    mirror = TunnelIdentity(Role.AGENT, KEY)
    mirror.context = tunnel_certificates._context(
        Role.AGENT, tunnel_certificates._derive_key(KEY, Role.CLIENT), CLIENT.certificate, CLIENT.certificate
    )
    client, agent = SecureChannel(CLIENT), SecureChannel(mirror)
    agent.feed(client.data_to_send())
    with pytest.raises(WrongTunnelKey):
        client.feed(agent.data_to_send())


def test_a_trusted_but_unexpected_certificate_is_refused():
    """The pin is the exact certificate, not merely what OpenSSL accepts."""
    identity = TunnelIdentity(Role.CLIENT, KEY)
    identity.peer_certificate = OTHER_AGENT.certificate
    client, agent = SecureChannel(identity), SecureChannel(AGENT)
    agent.feed(client.data_to_send())
    with pytest.raises(WrongTunnelKey):
        client.feed(agent.data_to_send())
    assert client.state is ChannelState.FAILED


def test_an_agent_with_a_key_refuses_a_client_without():
    """The agent's unencrypted refusal names the side without the key."""
    handshake, agent = HelloHandshake(Settings()), SecureChannel(AGENT)
    with pytest.raises(TunnelKeyMissing, match="the agent has a tunnel key but the client has none") as caught:
        agent.feed(handshake.request)
    assert caught.value.role is Role.CLIENT
    outcome = handshake.receive_data(agent.data_to_send(), 0.0)
    assert (outcome.refusal, outcome.text) == (Refusal.KEY_MISMATCH, caught.value.sentence)


def test_a_client_learns_that_the_agent_has_no_key():
    """A client with a key learns from the agent's unencrypted refusal that the agent has none."""
    client = SecureChannel(CLIENT)
    refusal = AgentHandshake(SessionTable(Settings()), ENTROPY).receive_data(client.data_to_send(), 0.0)
    with pytest.raises(TunnelKeyMissing, match="the client has a tunnel key but the agent has none") as caught:
        client.feed(refusal.reply)
    assert caught.value.role is Role.AGENT
    assert caught.value.sentence == Refused.decode(refusal.reply[HEADER_SIZE:]).text
    assert client.data_to_send() == b""


@pytest.mark.parametrize("identity", [CLIENT, AGENT])
@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x01\x00", b"{"])
def test_strangers_are_not_taken_for_a_missing_key(identity, data):
    """A peer that uses neither TLS nor the tunnel protocol raises an error with that fact, and gets no answer."""
    channel = SecureChannel(identity)
    with pytest.raises(ProtocolError, match="neither TLS nor the tunnel protocol"):
        channel.feed(data)
    assert channel.state is ChannelState.FAILED
    assert channel.data_to_send() == b""


def test_tls_garbage_is_a_protocol_error():
    """A record with a valid header and invalid content fails the handshake, with an error of ours."""
    with pytest.raises(ProtocolError, match="the encrypted channel failed"):
        SecureChannel(AGENT).feed(b"\x16\x03\x01\x00\x05hello")


def test_a_changed_byte_breaks_the_channel():
    """A modified byte in transit is an error."""
    client, agent = open_pair()
    ciphertext = bytearray(client.seal([b"continue"]))
    ciphertext[-1] ^= 1
    with pytest.raises(ProtocolError, match="the encrypted channel failed"):
        agent.feed(ciphertext)
    assert agent.state is ChannelState.FAILED


def test_ciphertext_of_another_transport_is_worthless():
    """Replayed records are rejected."""
    (client, _), (_, agent) = open_pair(), open_pair()
    with pytest.raises(ProtocolError):
        agent.feed(client.seal([b"continue"]))


def test_a_close_notify_is_distinguished_from_a_truncation():
    """Only close() closes the peer's end; what was cut off leaves it open."""
    client, agent = open_pair()
    last = client.seal([b"last words"])
    assert agent.feed(last[:-1]) == b""
    assert not agent.is_closed
    assert agent.feed(last[-1:] + client.close()) == b"last words"
    assert agent.is_closed
    assert agent.state is client.state is ChannelState.CLOSED


@pytest.mark.parametrize("end", ["before", "after"])
def test_nothing_is_sealed_outside_an_open_channel(end):
    """Before the handshake and after the close_notify, sending is an error."""
    client = SecureChannel(CLIENT)
    if end == "after":
        client, _ = open_pair()
        client.close()
    with pytest.raises(ConnectionLost, match="not open"):
        client.seal([b"secret"])
    assert client.state is (ChannelState.CLOSED if end == "after" else ChannelState.HANDSHAKE)


def test_a_cut_at_any_byte_of_the_handshake_leaves_it_incomplete():
    """An incomplete handshake is neither an open channel nor a wrong key."""
    client, agent = SecureChannel(CLIENT), SecureChannel(AGENT)
    first = client.data_to_send()
    for offset in range(len(first)):
        channel = SecureChannel(AGENT)
        channel.feed(first[:offset])
        assert channel.state is ChannelState.HANDSHAKE
    agent.feed(first)
    flight = agent.data_to_send()
    for offset in range(0, len(flight), 7):
        channel = SecureChannel(CLIENT)
        channel.data_to_send()
        with contextlib.suppress(ProtocolError):  # another client's flight: broken at the latest when complete
            channel.feed(flight[:offset])
        assert channel.state in {ChannelState.HANDSHAKE, ChannelState.FAILED}
