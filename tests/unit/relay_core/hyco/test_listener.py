"""Facts about the listener's life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import (
    ConfigurationError,
    ConnectionLost,
    HybridConnectionNotFound,
    ProtocolError,
    RelayDebugError,
    RelayUnreachable,
    TooManyListeners,
    Unauthorized,
    UntrustedCertificate,
)
from relay_core.hyco.backoff import CAP, FIRST_CEILING, HEALTHY_AFTER, PROMPT_CAP, ROLE_PROPAGATION
from relay_core.hyco.listener import NOT_FOUND_GRACE, ListenerState, ListenerStateMachine

REFUSED = Unauthorized("no role", hint="assign it", status=401)


def machine(chance: float = 0.5, role_grace: float = 0.0) -> ListenerStateMachine:
    return ListenerStateMachine(now=100.0, random=lambda: chance, role_grace=role_grace)


def test_first_failure_is_retried_at_once() -> None:
    """After the first loss the listener dials without delay."""
    listener = machine()
    listener.opened(now=100.0, token_lifetime=None)
    listener.failed(ConnectionLost("gone"), now=101.0)
    assert (ListenerState.WAITING, 101.0) == (listener.state, listener.retry_at)


def test_delays_grow_to_the_cap() -> None:
    """Each further failure doubles the ceiling, up to the cap."""
    listener = machine(chance=1.0)
    delays = []
    for _ in range(12):
        listener.failed(RelayUnreachable("down"), now=0.0)
        delays.append(listener.retry_at)
    assert [0.0, 0.2, 0.4, 0.8, 1.6] == delays[:5]
    assert CAP == delays[-1]


def test_retries_are_prompt_while_the_listener_is_needed() -> None:
    """A relay that refuses connections is tried three times a second for as long as somebody waits for the listener."""
    listener = machine(chance=0.999)
    for _ in range(12):
        listener.failed(RelayUnreachable("connection refused"), now=0.0, needed=True)
        assert listener.retry_at <= PROMPT_CAP
    listener.failed(RelayUnreachable("connection refused"), now=0.0, needed=False)
    assert listener.retry_at < FIRST_CEILING


@pytest.mark.parametrize("error", [RelayUnreachable("503", costly=True), Unauthorized("role", status=401)])
def test_retries_that_cost_the_relay_something_are_calm(error: RelayDebugError) -> None:
    """A relay that answers that it is overloaded, or refuses an identity, is not asked every 0.3 s."""
    listener = machine(chance=0.999, role_grace=ROLE_PROPAGATION)
    for _ in range(7):
        listener.failed(error, now=100.0, needed=True)
    assert listener.retry_at > 102.0


def test_a_short_connection_does_not_reset_the_delays() -> None:
    """A relay that accepts and drops at once is not hammered."""
    listener = machine(chance=1.0)
    for _ in range(6):
        listener.opened(now=10.0, token_lifetime=None)
        listener.failed(ConnectionLost("gone"), now=11.0)
    assert listener.retry_at > 14.0


def test_a_healthy_connection_resets_the_delays() -> None:
    """After 30 s of listening the next loss is retried at once."""
    listener = machine(chance=1.0)
    for _ in range(6):
        listener.failed(RelayUnreachable("down"), now=10.0)
    listener.opened(now=10.0, token_lifetime=None)
    listener.failed(ConnectionLost("gone"), now=10.0 + HEALTHY_AFTER)
    assert 10.0 + HEALTHY_AFTER == listener.retry_at


def test_a_refused_token_is_replaced_once() -> None:
    """One 401 leads to a fresh token, a second in a row ends the listener."""
    listener = machine()
    listener.failed(Unauthorized("expired"), now=100.0)
    assert (ListenerState.WAITING, True) == (listener.state, listener.is_replacing_token)
    listener.failed(Unauthorized("expired"), now=101.0)
    assert (ListenerState.ENDED, False) == (listener.state, listener.is_replacing_token)


def test_refusals_are_forgiven_after_health() -> None:
    """A 1008 a day, as with rotated keys in use again, does not add up to an end."""
    listener = machine()
    for day in range(5):
        listener.opened(now=day * 86400.0, token_lifetime=3600)
        listener.failed(Unauthorized("expired"), now=(day + 1) * 86400.0)
        assert ListenerState.WAITING is listener.state


def test_a_key_that_is_refused_has_no_grace() -> None:
    """Without roles a second 401 in a row ends the listener, as it was answered."""
    listener = machine()
    for now in (100.0, 101.0):
        listener.failed(REFUSED, now=now)
    assert (ListenerState.ENDED, REFUSED, None) == (listener.state, listener.error, listener.refused_until)


def test_a_role_may_be_new() -> None:
    """A refused identity is retried for five minutes, the last time at their end, and then no more."""
    listener = machine(chance=1.0, role_grace=ROLE_PROPAGATION)
    now, attempts = 100.0, 0
    while listener.state is not ListenerState.ENDED:
        listener.dialling()
        listener.failed(REFUSED, now=now)
        now, attempts = listener.retry_at, attempts + 1
    assert 100.0 + ROLE_PROPAGATION == now
    assert 20 <= attempts <= 60
    assert str(listener.error).startswith("no role; still refused after 5 minutes")
    assert "hint: assign it" in str(listener.error)


def test_when_a_refused_identity_is_given_up() -> None:
    """The time is known while it is retried, and not for other failures."""
    listener = machine(role_grace=ROLE_PROPAGATION)
    listener.failed(REFUSED, now=100.0)
    assert (ListenerState.WAITING, 400.0) == (listener.state, listener.refused_until)
    listener.failed(RelayUnreachable("down"), now=500.0)
    assert (ListenerState.WAITING, None) == (listener.state, listener.refused_until)
    listener.failed(RelayUnreachable("down"), now=501.0)
    assert listener.retry_at > 501.0


def test_a_role_that_worked_gets_the_whole_time_again() -> None:
    """A role that is taken away is waited for as long as a new one."""
    listener = machine(role_grace=ROLE_PROPAGATION)
    listener.failed(REFUSED, now=100.0)
    listener.opened(now=200.0, token_lifetime=None)
    listener.failed(ConnectionLost("gone"), now=5000.0)
    listener.failed(REFUSED, now=5001.0)
    assert (ListenerState.WAITING, 5001.0 + ROLE_PROPAGATION) == (listener.state, listener.refused_until)


def test_a_sign_in_that_is_refused_has_no_grace() -> None:
    """A wrong client secret does not become right in five minutes: the second refusal ends the listener."""
    listener = machine(role_grace=ROLE_PROPAGATION)
    for now in (100.0, 101.0):
        assert listener.state is not ListenerState.ENDED
        listener.failed(Unauthorized("Entra ID refused the client secret"), now=now)
    assert ListenerState.ENDED is listener.state


def test_a_missing_hybrid_connection_has_a_grace() -> None:
    """A new hybrid connection may take a while to appear; later its absence is final."""
    listener = machine()
    listener.failed(HybridConnectionNotFound("no"), now=100.0 + NOT_FOUND_GRACE - 1)
    assert ListenerState.WAITING is listener.state
    listener.failed(HybridConnectionNotFound("no"), now=100.0 + NOT_FOUND_GRACE)
    assert ListenerState.ENDED is listener.state


PERMANENT = [
    UntrustedCertificate("no"),
    TooManyListeners("no"),
    ProtocolError("no"),
    ConfigurationError("no"),
    RelayDebugError("no"),
]


@pytest.mark.parametrize("error", PERMANENT)
def test_what_time_cannot_cure_ends_the_listener(error: RelayDebugError) -> None:
    """A permanent error ends a listener that has never listened, and is kept."""
    listener = machine()
    listener.failed(error, now=100.0)
    assert (ListenerState.ENDED, error) == (listener.state, listener.error)


@pytest.mark.parametrize("error", [*PERMANENT, HybridConnectionNotFound("no"), RelayUnreachable("no")])
def test_a_listener_that_has_listened_retries(error: RelayDebugError) -> None:
    """A week of portals, inspecting proxies and quotas does not end a listener whose settings have worked."""
    listener = machine(chance=1.0)
    listener.opened(now=100.0, token_lifetime=None)
    listener.failed(ConnectionLost("gone"), now=200.0)
    while listener.retry_at < 200.0 + 7 * 86400:
        listener.dialling()
        listener.failed(error, now=listener.retry_at)
        assert ListenerState.WAITING is listener.state


@pytest.mark.parametrize("error", PERMANENT)
def test_a_listener_whose_predecessor_has_listened_retries(error: RelayDebugError) -> None:
    """The settings of an agent that replaces a killed one are known to be right, so its first failure is an outage."""
    listener = ListenerStateMachine(now=100.0, random=lambda: 0.5, has_listened=True)
    listener.failed(error, now=100.0)
    assert ListenerState.WAITING is listener.state


def test_a_listener_that_has_listened_ends_when_its_key_is_revoked() -> None:
    """A second refusal of the credentials ends it, although it has listened."""
    listener = machine()
    listener.opened(now=100.0, token_lifetime=None)
    listener.failed(ConnectionLost("gone"), now=200.0)
    listener.failed(REFUSED, now=201.0)
    assert ListenerState.WAITING is listener.state
    listener.failed(REFUSED, now=202.0)
    assert (ListenerState.ENDED, REFUSED) == (listener.state, listener.error)


@given(lifetime=st.floats(0, 1e6), chance=st.floats(0, 1, exclude_max=True))
def test_renewal_comes_before_expiry(lifetime: float, chance: float) -> None:
    """A token is renewed after 65 to 75 % of its life, but not in a loop when it is about to expire."""
    listener = machine(chance)
    listener.opened(now=0.0, token_lifetime=lifetime)
    assert listener.renew_at is not None
    assert max(1.0, 0.65 * lifetime) - 1e-6 <= listener.renew_at <= max(1.0, 0.75 * lifetime) + 1e-6


def test_renewal_is_scheduled_again() -> None:
    """Each renewed token has a renewal of its own."""
    listener = machine(chance=0.0)
    listener.opened(now=0.0, token_lifetime=100)
    listener.renewed(now=75.0, token_lifetime=100)
    assert listener.renew_at == 150.0


def test_tokens_without_expiry_are_not_renewed() -> None:
    """A token that does not expire has no renewal."""
    listener = machine()
    listener.opened(now=0.0, token_lifetime=None)
    assert listener.renew_at is None
