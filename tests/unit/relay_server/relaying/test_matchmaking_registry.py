"""Facts about the registry of hybrid connections and their listeners."""

from dataclasses import dataclass

import pytest

from relay_server.config.model import HybridConnection
from relay_server.protocol.refusals import Refusal
from relay_server.relaying.matchmaking import Registry

A, AB, CASE = HybridConnection("a"), HybridConnection("a/b"), HybridConnection("Mixed/Case")


@dataclass(eq=False)
class Listener:
    id: str
    hybrid_connection: HybridConnection = A


def registry(*listeners, max_listeners=25):
    made = Registry([A, AB, CASE], max_listeners=max_listeners)
    for listener in listeners:
        made.add(listener)
    return made


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", A),
        ("A", A),
        ("a/x/y", A),
        ("a/", A),
        ("a/b", AB),
        ("a/B/c", AB),
        ("mixed/case/z", CASE),
        ("ax", None),
        ("mixed", None),
        ("", None),
        ("/a", None),
    ],
)
def test_the_longest_path_on_a_segment_boundary_is_found(path, found):
    """Hybrid connections match as path prefixes in any case, and only whole segments count."""
    assert found is registry().find(path.split("/"))


def test_each_hybrid_connection_has_its_own_listeners():
    """The listeners of a hybrid connection are returned in the order of their arrival."""
    first, other, second = Listener("x"), Listener("y", AB), Listener("z")
    made = registry(first, other, second)
    assert ([first, second], [other], []) == tuple(map(made.listeners_of, (A, AB, CASE)))


def test_the_limit_counts_per_hybrid_connection():
    """One listener too many is refused with a text that clients know, and room is made by leaving."""
    first = Listener("1")
    full = registry(first, max_listeners=1)
    full.check_room(AB, "2")
    with pytest.raises(Refusal, match="MaximumListenersPerEndpoint") as caught:
        full.check_room(A, "2")
    assert 403 == caught.value.status
    full.remove(first)
    full.check_room(A, "2")


def test_a_listener_has_room_in_place_of_its_own_channel():
    """At the limit, the oldest channel of the same id is the one to close; below the limit none is."""
    other, old, new = Listener("other"), Listener("same"), Listener("SAME")
    full = registry(other, old, new, max_listeners=3)
    assert old is full.check_room(A, "Same")
    assert registry(old, max_listeners=2).check_room(A, "same") is None
