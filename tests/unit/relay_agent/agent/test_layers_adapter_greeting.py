"""Facts about the layer that waits for the greeting of debugpy's adapter."""

import pytest

from relay_agent.agent.layers import FIRST_BYTES_LIMIT, GREETING_LIMIT, GreetingGuard
from relay_core.layers.layer import Abort, EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from tests.support.sessions.layers import Alone

GREETING = b'{"event": "output"} {"event": "output"} {"event": "debugpySockets"}'
START = 100.0


@pytest.fixture
def guard():
    return Alone(GreetingGuard(START))


@pytest.mark.parametrize("end", ["receive_peer_eof", "receive_peer_lost"])
@pytest.mark.parametrize("cut", range(1, len(GREETING) - 1))
def test_the_end_of_the_client_follows_the_greeting(guard, end, cut):
    """However the greeting is cut, the adapter does not see its client's end before the last event."""
    held = {"receive_peer_eof": EndLocal(), "receive_peer_lost": ResetLocal()}[end]
    assert [ToPeer(GREETING[:cut])] == guard.receive_local(GREETING[:cut], START)
    outputs = getattr(guard, end)(START)
    complete = b'"debugpySockets"' in GREETING[:cut]
    assert ([held] if complete else []) == outputs
    rest = guard.receive_local(GREETING[cut:], START)
    assert [ToPeer(GREETING[cut:]), *([] if complete else [held])] == rest
    assert guard.is_finished


def test_bytes_are_never_held(guard):
    """Requests of the client reach the adapter during the greeting."""
    assert [ToLocal(b"initialize")] == guard.receive_peer(b"initialize", START)
    guard.receive_local(GREETING[:5], START)
    assert [ToLocal(b"attach")] == guard.receive_peer(b"attach", START)


def test_there_is_a_limit_to_the_greeting(guard):
    """One of several connections receives the last event; the others end GREETING_LIMIT after their first bytes."""
    guard.receive_local(GREETING[:5], START + 1)
    guard.receive_peer_eof(START + 1)
    assert (START + 1 + GREETING_LIMIT, []) == (guard.next_deadline(), guard.tick(START + 1.1))
    assert [EndLocal()] == guard.tick(START + 1 + GREETING_LIMIT)
    assert (True, None) == (guard.is_finished, guard.next_deadline())


def test_an_adapter_that_does_not_greet(guard):
    """An adapter that sends nothing, or disconnects immediately, is an error for both sides."""
    guard.receive_peer_lost(START)
    assert (START + FIRST_BYTES_LIMIT, []) == (guard.next_deadline(), guard.tick(START + 1))
    silent = [Abort("debugpy accepted the connection but did not answer")]
    assert silent == guard.tick(START + FIRST_BYTES_LIMIT)
    assert silent == Alone(GreetingGuard(START)).receive_local_eof(START)


def test_an_adapter_that_disconnects_during_its_greeting(guard):
    """Its end is passed on, and the client's end is no longer held back."""
    guard.receive_local(GREETING[:5], START)
    guard.receive_peer_eof(START)
    assert [EndPeer(), EndLocal()] == guard.receive_local_eof(START)
