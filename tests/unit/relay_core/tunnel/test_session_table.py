import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel.frames import HEADER_SIZE, OPEN, encode_frame, encode_open
from relay_core.tunnel.handshake import Attached, NotAttached
from relay_core.tunnel.limits import REPLACE_IN_USE_AFTER, UNCONFIRMED_GRACE, VERSION, Limits, Settings
from relay_core.tunnel.messages import Greeting, Refused, Resume, Resumed
from relay_core.tunnel.outcomes import Death, OverReason, Refusal
from relay_core.tunnel.session_table import ENTROPY_SIZE, AgentHandshake, SessionTable
from tests.support.sessions.tunnel_link import ENTROPY, Link, connected

HELLO = Greeting(Limits()).encode()
NONCE = b"n" * 16


@pytest.fixture
def link() -> Link:
    """A session on its first transport."""
    return connected()


def present(table: SessionTable, data: bytes, entropy: bytes = ENTROPY, now: float = 1000.0) -> Attached | NotAttached:
    return AgentHandshake(table, entropy).receive_data(data, now)


def resume_of(link: Link, **changes) -> Resume:
    session = link.client.session
    values = {"epoch": session.epoch + 1, "received": session.received, "nonce": NONCE} | changes
    return Resume.make(values.pop("secret", session.secret), values.pop("session_id", session.id), **values)


def refusal_in(outcome: NotAttached) -> Refused:
    return Refused.decode(outcome.reply[HEADER_SIZE:])


def unharmed(link: Link) -> bool:
    """Whether the live session still works on its first transport."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.agent.collect()
    return link.client.is_accepted(stream) and link.agent.dead == [] and link.agent.session.epoch == 1


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"session_id": b"guessed session!"}, Refusal.UNKNOWN_SESSION),
        ({"secret": bytes(32)}, Refusal.BAD_PROOF),
        ({"epoch": 1}, Refusal.STALE_EPOCH),
        ({"epoch": 0}, Refusal.STALE_EPOCH),
        ({"received": 99}, Refusal.SEQ_GAP),
    ],
)
def test_a_wrong_resume_is_refused_and_harmless(link, changes, refusal):
    """A guessed id, a wrong secret, an old epoch and an impossible claim each have their name."""
    outcome = present(link.table, resume_of(link, **changes).encode())
    assert outcome.refusal is refusal
    assert refusal_in(outcome).refusal is refusal
    assert unharmed(link)


def test_a_resume_that_was_changed_on_the_way_is_harmless(link):
    """Numbers that the proof does not cover are not believed, not even the epoch."""
    forged = dataclasses.replace(resume_of(link), epoch=1000)
    assert present(link.table, forged.encode()).refusal is Refusal.BAD_PROOF
    assert unharmed(link)


def test_a_replayed_resume_is_stale(link):
    """Each RESUME works once, so recording one is of no use."""
    recorded = resume_of(link).encode()
    link.wire.cut()
    first = present(link.table, recorded)
    assert isinstance(first, Attached)
    assert present(link.table, recorded).refusal is Refusal.STALE_EPOCH
    assert link.agent.session.attached


def test_a_right_resume_supersedes_the_transport_that_still_seems_to_work(link):
    """The agent may notice the end of the old transport last of all; the client comes back all the same."""
    resume = resume_of(link)
    outcome = present(link.table, resume.encode())
    link.agent.collect()
    assert (outcome.session, outcome.epoch, outcome.new) == (link.agent.session, 2, False)
    assert link.agent.dead == [(1, Death.SUPERSEDED)]
    assert Resumed.decode(outcome.reply[HEADER_SIZE:]).verify(link.client.session.secret, resume)


def test_epochs_may_skip_attempts_that_never_arrived(link):
    """Only upwards matters."""
    assert present(link.table, resume_of(link, epoch=17).encode()).epoch == 17
    assert present(link.table, resume_of(link, epoch=16).encode()).refusal is Refusal.STALE_EPOCH


def test_a_restarted_agent_knows_no_session(link):
    """The refusal is final, and marked as final."""
    outcome = present(SessionTable(Settings()), resume_of(link).encode())
    assert outcome.refusal is Refusal.UNKNOWN_SESSION
    assert outcome.refusal.final


def full_table(count: int = 2) -> tuple[SessionTable, list]:
    """A table with as many sessions as it may have, all with a transport."""
    table = SessionTable(Settings(grace=3600.0, max_sessions=count))
    return table, [present(table, HELLO, bytes([number]) * ENTROPY_SIZE).session for number in range(1, count + 1)]


def open_stream(session) -> None:
    """Let the client of a session open a stream."""
    session.receive_data(1, encode_frame(OPEN, encode_open(1, {}), stream=1, seq=1), 1000.0)
    assert len(session.streams) == 1


def test_the_number_of_sessions_is_limited():
    """A client above the limit is refused while all sessions have a transport, and admitted once one has expired."""
    table, sessions = full_table()
    outcome = present(table, HELLO)
    assert outcome.refusal is Refusal.BUSY
    assert not outcome.refusal.final
    assert "limit of 2 sessions" in refusal_in(outcome).text
    assert [None, None] == [session.over for session in sessions]
    sessions[0].transport_lost(1, 1000.0)
    assert isinstance(present(table, HELLO, now=1000.0 + UNCONFIRMED_GRACE), Attached)
    assert [True, True] == [session.attached for session in table]


def test_a_new_client_replaces_the_session_that_lost_its_transport_first():
    """A killed client keeps nobody out; the other sessions are kept."""
    table, sessions = full_table(3)
    for session, now in zip(sessions, (1003.0, 1001.0, 1002.0), strict=True):
        session.transport_lost(1, now)
    assert isinstance(present(table, HELLO, now=1004.0), Attached)
    assert [None, OverReason.ABORTED, None] == [session.over and session.over.reason for session in sessions]
    assert (3, 1) == (len(table), sum(session.attached for session in table))


def test_a_session_with_streams_is_replaced_last():
    """A debugger that is attached keeps its session while there is one without, however long it has been away."""
    table, (busy, idle) = full_table()
    open_stream(busy)
    busy.transport_lost(1, 1000.0)
    idle.transport_lost(1, 1500.0)
    present(table, HELLO, now=1501.0)
    assert (None, OverReason.ABORTED) == (busy.over, idle.over.reason)


def test_an_outage_of_all_clients_ends_no_debug_session():
    """A session with streams makes room only after it has been without a transport for a while."""
    table, (busy, other) = full_table()
    open_stream(busy)
    busy.transport_lost(1, 1000.0)
    assert present(table, HELLO, now=1000.0 + REPLACE_IN_USE_AFTER - 0.1).refusal is Refusal.BUSY
    assert isinstance(present(table, HELLO, now=1000.0 + REPLACE_IN_USE_AFTER), Attached)
    assert (OverReason.ABORTED, None) == (busy.over.reason, other.over)


def test_a_replaced_client_gets_the_reason():
    """Its RESUME is refused for good, with a sentence of its own."""
    table, (session, _) = full_table()
    session.transport_lost(1, 1000.0)
    present(table, HELLO, now=1001.0)
    resume = Resume.make(session.secret, session.id, epoch=2, received=0, nonce=NONCE)
    outcome = present(table, resume.encode(), now=1002.0)
    assert outcome.refusal is Refusal.UNKNOWN_SESSION
    why = "the session had no connection, and the agent needed its place for another client (limit: 2)"
    assert why == refusal_in(outcome).text == session.over.text


def test_a_session_of_which_the_client_may_not_know_is_not_kept_for_long(link):
    """Until something comes on it, the WELCOME may be lost; a client that has sent something gets its whole grace."""
    table = SessionTable(Settings(grace=3600.0))
    session = present(table, HELLO).session
    session.transport_lost(1, 1000.0)
    assert session.next_deadline() == 1000.0 + UNCONFIRMED_GRACE
    table.sweep(1000.0 + UNCONFIRMED_GRACE)
    assert len(table) == 0
    assert session.over.reason is OverReason.GRACE_EXPIRED
    link.agent.session.grace = 3600.0
    link.wire.cut()
    assert link.agent.session.next_deadline() == link.now + 3600.0


def test_a_session_that_was_resumed_is_known_to_its_client(link):
    """A proof is as good as a frame."""
    table = SessionTable(Settings(grace=3600.0))
    session = present(table, HELLO).session
    session.transport_lost(1, 1000.0)
    resume = Resume.make(session.secret, session.id, epoch=2, received=0, nonce=NONCE)
    assert isinstance(present(table, resume.encode()), Attached)
    session.transport_lost(2, 1000.0)
    assert session.next_deadline() == 1000.0 + 3600.0


@pytest.mark.parametrize(("version", "min_version"), [(VERSION + 2, VERSION + 1), (0, 0)])
def test_a_client_of_another_age_learns_which_versions_there_are(version, min_version):
    """It cannot be served, and its user can read why."""
    table = SessionTable(Settings())
    outcome = present(table, Greeting(Limits(), version=version, min_version=min_version).encode())
    assert outcome.refusal is Refusal.VERSION
    assert f"versions {VERSION} to {VERSION}" in refusal_in(outcome).text
    assert len(table) == 0


def test_a_newer_client_that_also_speaks_this_version_is_welcome():
    """The common version is chosen."""
    assert isinstance(present(SessionTable(Settings()), Greeting(Limits(), version=VERSION + 1).encode()), Attached)


def test_a_client_with_a_tunnel_key_learns_that_the_agent_has_none():
    """Its TLS is recognised by the first byte, and answered in the clear."""
    outcome = present(SessionTable(Settings()), b"\x16\x03\x01\x02")
    assert outcome.refusal is Refusal.KEY_MISMATCH
    assert refusal_in(outcome).text == "the client has a tunnel key but the agent has none"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1", b"\x01\x00\x04abcd", b'{"version":1}', Refused(Refusal.BUSY, "").encode(), HELLO[:20]]
)
def test_what_is_no_first_frame_of_a_client_is_malformed_or_waited_for(data):
    """Strangers are refused at once; half a HELLO is waited for."""
    table = SessionTable(Settings())
    outcome = present(table, data)
    if data == HELLO[:20]:
        assert outcome is None
    else:
        assert outcome.refusal is Refusal.MALFORMED


@given(data=st.binary(max_size=100), head=st.sampled_from([b"", HELLO[:1], HELLO[:20], HELLO[:32], HELLO]))
def test_any_first_bytes_have_an_outcome(data, head):
    """Garbage waits for more or is refused; a HELLO is a HELLO, whatever follows."""
    outcome = present(SessionTable(Settings()), head + data)
    assert outcome is None or isinstance(outcome, Attached | NotAttached)
    if head == HELLO:
        assert outcome.trailing == data


def test_what_follows_a_first_frame_belongs_to_the_session():
    """The owner passes `trailing` on."""
    assert present(SessionTable(Settings()), HELLO + b"rest").trailing == b"rest"


def test_entropy_must_be_complete():
    """A short id would be a guessable one."""
    with pytest.raises(ValueError, match="48 random bytes"):
        AgentHandshake(SessionTable(Settings()), b"short")
