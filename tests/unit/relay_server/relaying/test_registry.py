from dataclasses import dataclass

import pytest

from relay_server.config.model import HybridConnection
from relay_server.protocol.refusals import Refusal
from relay_server.relaying.registry import Registry

A, AB, CASE = HybridConnection("a"), HybridConnection("a/b"), HybridConnection("Mixed/Case")


@dataclass(eq=False)
class Listener:
    id: str
    hybrid_connection: HybridConnection = A


def registry(*listeners, choose=lambda _: 0, max_listeners=25):
    made = Registry([A, AB, CASE], max_listeners=max_listeners, choose=choose)
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


def test_nobody_listening_is_told_apart_from_nobody_suitable():
    """Both are 404 and differ in their text."""
    with pytest.raises(Refusal, match="no listeners connected"):
        registry().candidates(A)
    with pytest.raises(Refusal, match="AllowedListeners/DisallowedListeners"):
        registry(Listener("x")).candidates(A, allowed={"y"})


def test_allowed_and_disallowed_are_compared_without_case():
    """Ids are GUIDs, and clients write them in either case."""
    one, two = Listener("ID-1"), Listener("id-2")
    assert [one] == registry(one, two).candidates(A, allowed={"id-1"})
    assert [two] == registry(one, two).candidates(A, disallowed={"id-1"})
    assert [two] == registry(one, two).candidates(A, allowed={"id-1", "id-2"}, disallowed={"id-1"})


def test_listeners_of_other_hybrid_connections_are_no_candidates():
    """Each hybrid connection has its own listeners."""
    other = Listener("x", AB)
    assert [other] == registry(other, Listener("y")).candidates(AB)


def test_every_listener_may_come_first():
    """The order is random: each choice puts another listener first, and all of them stay candidates."""
    listeners = [Listener(str(number)) for number in range(3)]
    orders = [
        registry(*listeners, choose=lambda count, pick=pick: min(pick, count - 1)).candidates(A) for pick in range(3)
    ]
    assert listeners == [order[0] for order in orders]
    assert all(set(order) == set(listeners) for order in orders)


def test_the_newest_channel_of_one_id_comes_first():
    """An agent that came back is reached on its new channel; the old one is only tried after all others."""
    old, other, new = Listener("same"), Listener("other"), Listener("SAME")
    assert [new, other, old] == registry(old, other, new).candidates(A)


def test_the_limit_counts_per_hybrid_connection():
    """One listener too many is refused in words that clients know, and room is made by leaving."""
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


def test_repr_counts_listeners():
    """The state is one line."""
    assert "<Registry {'a': 1, 'a/b': 0, 'Mixed/Case': 0}>" == repr(registry(Listener("x")))
