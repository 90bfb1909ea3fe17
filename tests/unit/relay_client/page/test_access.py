"""Facts about who may read what the page shows."""

import itertools

import pytest

from relay_client.page.access import MAX_SESSIONS, PageAccess


@pytest.fixture
def access() -> PageAccess:
    numbers = itertools.count()
    return PageAccess(8080, lambda: f"secret-{next(numbers)}")


def test_the_link_has_the_token_in_its_fragment(access: PageAccess) -> None:
    """A browser sends no fragment, so that the token is in no log and in no other page's referrer."""
    assert "http://127.0.0.1:8080/#secret-0" == access.link


def test_a_token_is_valid_once(access: PageAccess) -> None:
    """The next link has another token."""
    assert access.open_session("secret-0") is not None
    assert access.open_session("secret-0") is None
    assert "http://127.0.0.1:8080/#secret-1" == access.link


@pytest.mark.parametrize("token", ["", "secret", "secret-00", "geheim-ü", "\udce4"])
def test_other_tokens(access: PageAccess, token: str) -> None:
    """They open no session, and the link stays valid."""
    assert access.open_session(token) is None
    assert "http://127.0.0.1:8080/#secret-0" == access.link


def test_keys(access: PageAccess) -> None:
    """Each tab has its own key, and neither a token nor another text is one."""
    first, second = access.open_session("secret-0"), access.open_session("secret-1")
    assert first is not None
    assert second is not None
    assert access.is_valid(first)
    assert access.is_valid(second)
    assert not access.is_valid("")
    assert not access.is_valid("secret-0")


def test_the_oldest_key_expires(access: PageAccess) -> None:
    """The number of keys is limited."""
    keys = [access.open_session(access.link.partition("#")[2]) for _ in range(MAX_SESSIONS + 1)]
    assert [False, *([True] * MAX_SESSIONS)] == [access.is_valid(str(key)) for key in keys]


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("127.0.0.1", False),
        ("127.0.0.1:8081", False),
        ("attacker.example:8080", False),
        ("localhost.attacker.example:8080", False),
        ("", False),
        (None, False),
    ],
)
def test_hosts(access: PageAccess, host: str | None, is_own: bool) -> None:
    """A page of another name whose address was changed to 127.0.0.1 gets nothing."""
    assert is_own == access.is_own_host(host)
