"""Facts about families of hybrid connections."""

import pytest

from relay_core.errors import ConfigurationError, HybridConnectionNotFound, TooManyListeners
from relay_core.hyco.address import Endpoint
from relay_core.hyco.family import MAX_SIZE, FamilyName, SiblingOrder, no_sibling_left

FAMILY = Endpoint("contoso.servicebus.windows.net", 443, "alice", 3)
FULL = TooManyListeners("'alice' is full")
ABSENT = HybridConnectionNotFound("there is no 'alice'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alice", FamilyName("alice", None)),
        ("/alice/", FamilyName("alice", None)),
        ("alice:8", FamilyName("alice", 8)),
        ("team/alice:1", FamilyName("team/alice", 1)),
        (f"alice:{MAX_SIZE}", FamilyName("alice", MAX_SIZE)),
        ("", FamilyName("", None)),
    ],
)
def test_accepted_names(text: str, expected: FamilyName) -> None:
    """The size follows a colon and may be absent."""
    assert expected == FamilyName.parse(text)


@pytest.mark.parametrize(
    "text", ["alice:", "alice:0", "alice:x", ":4", "alice:-1", "alice:1:2", "alice:²", "alice:99999", "alice:000199999"]
)
def test_refused_names(text: str) -> None:
    """A size that is not a number of hybrid connections is refused with the format."""
    with pytest.raises(ConfigurationError, match="NAME:SIZE"):
        FamilyName.parse(text)


def test_a_size_above_the_limit_is_refused() -> None:
    """More listeners than a namespace has connections cannot be used."""
    with pytest.raises(ConfigurationError):
        FamilyName.parse(f"alice:{MAX_SIZE + 1}")


@pytest.mark.parametrize(("chance", "expected"), [(0.0, [0, 1, 2]), (0.5, [1, 2, 0]), (0.999, [2, 0, 1])])
def test_a_listener_begins_at_random(chance: float, expected: list[int]) -> None:
    """It tries all hybrid connections once, beginning at a random one."""
    assert expected == SiblingOrder(3, lambda: chance).indexes()


def test_a_listener_returns_to_its_hybrid_connection() -> None:
    """After an interruption, the one that accepted the listener is tried first."""
    order = SiblingOrder(3, lambda: 0.0)
    order.accepted(2)
    assert [2, 0, 1] == order.indexes()


def test_a_single_hybrid_connection_keeps_its_error() -> None:
    """Without a family, the relay's answer is the error."""
    assert FULL is no_sibling_left([FULL], Endpoint("h", 443, "alice"))


def test_a_full_family() -> None:
    """The sentence counts the hybrid connections that exist, and the hint has the command that adds some."""
    error = no_sibling_left([FULL, ABSENT, FULL], FAMILY)
    assert isinstance(error, TooManyListeners)
    assert error.sentence.startswith("all 2 hybrid connections of the family 'alice' have as many listeners")
    assert "infra/create_relay.sh --hc alice --nodes NUMBER" in (error.hint or "")


def test_a_family_that_does_not_exist() -> None:
    """If none of them exists, the error is that of a single one."""
    assert ABSENT is no_sibling_left([ABSENT, ABSENT, ABSENT], FAMILY)
