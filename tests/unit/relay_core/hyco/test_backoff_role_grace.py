"""Facts about how long the refusal of an identity is taken for that of a new role."""

import pytest

from relay_core.errors import RelayDebugError, RelayUnreachable, Unauthorized
from relay_core.hyco.backoff import ROLE_PROPAGATION, NewRoleGrace, refused_for_good, refused_for_now

REFUSED = Unauthorized("the relay refused the credentials (401)", hint="assign the role", status=401)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_by_the_relay_may_be_temporary(status: int) -> None:
    """401 and 403 of the relay are what an identity without a role gets."""
    assert NewRoleGrace(ROLE_PROPAGATION).concerns(Unauthorized("no", status=status))


@pytest.mark.parametrize("error", [Unauthorized("Entra ID refused the secret"), RelayUnreachable("down")])
def test_other_failures_have_other_reasons(error: RelayDebugError) -> None:
    """A sign-in that fails, and a relay that is down, have nothing to do with roles."""
    assert not NewRoleGrace(ROLE_PROPAGATION).concerns(error)


def test_keys_have_no_roles() -> None:
    """Without a grace no refusal is temporary."""
    assert not NewRoleGrace(0.0).concerns(REFUSED)


def test_the_time_counts_from_the_first_refusal() -> None:
    """Retries are allowed for five minutes after it, however many there are, and then no more."""
    grace = NewRoleGrace(ROLE_PROPAGATION)
    assert [True, True, True, False] == [grace.allows_retry(now=now) for now in (1000.0, 1100.0, 1299.0, 1300.0)]
    assert 1300.0 == grace.until


def test_an_identity_that_worked_gets_the_whole_time_again() -> None:
    """After a success the next refusal is the first one."""
    grace = NewRoleGrace(ROLE_PROPAGATION)
    grace.allows_retry(now=0.0)
    grace.worked()
    assert grace.until is None
    assert grace.allows_retry(now=5000.0)


def test_what_the_user_reads() -> None:
    """While it is retried: until when. At the end: that a new role is not the reason, and what to do."""
    now, end = refused_for_now(REFUSED, "12:08"), refused_for_good(REFUSED)
    assert REFUSED.sentence == now.sentence
    assert "a new role assignment takes up to 5 minutes to take effect; retrying until 12:08" == now.hint
    expected = f"{REFUSED.sentence}; still refused after 5 minutes, by which time a new role should have taken effect"
    assert expected == end.sentence
    assert REFUSED.hint == end.hint
    assert (401, 401) == (now.status, end.status)
