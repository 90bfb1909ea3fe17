"""Facts about the budget for connections that have not proved anything."""

import pytest

from relay_server.connection.tcp import Slots, source_of


class Connections:
    """Adds connections to a budget, and records which are dropped."""

    def __init__(self, *, total: int, per_source: int) -> None:
        self.budget = Slots(total=total, per_source=per_source)
        self.dropped: list[str] = []

    def add(self, source: str, name: str):
        return self.budget.add(source, lambda: self.dropped.append(name))


def test_a_source_replaces_its_own_oldest():
    """A source that has as many as it may have loses its oldest, and nobody else loses anything."""
    connections = Connections(total=10, per_source=2)
    connections.add("192.0.2.1", "other")
    for number in range(5):
        connections.add("192.0.2.2", f"number {number}")
    assert ["number 0", "number 1", "number 2"] == connections.dropped
    assert 3 == len(connections.budget)


def test_the_largest_source_makes_room():
    """If all sources together have too many, the one with the most loses its oldest."""
    connections = Connections(total=4, per_source=3)
    connections.add("192.0.2.1", "first")
    for number in range(3):
        connections.add("192.0.2.2", f"number {number}")
    connections.add("192.0.2.3", "last")
    assert ["number 0"] == connections.dropped
    assert 4 == len(connections.budget)


def test_who_has_left_is_not_dropped():
    """A connection that has proved itself, or has ended, makes room and is not dropped; leaving twice is harmless."""
    connections = Connections(total=2, per_source=1)
    place = connections.add("192.0.2.1", "proved")
    place()
    place()
    connections.add("192.0.2.1", "next")
    assert ([], 1) == (connections.dropped, len(connections.budget))


def test_an_empty_budget_has_nobody_to_drop():
    """`evict` reports that there is nobody."""
    connections = Connections(total=2, per_source=1)
    assert not connections.budget.evict()
    connections.add("192.0.2.1", "one")
    assert connections.budget.evict()
    assert (["one"], 0) == (connections.dropped, len(connections.budget))


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
    ],
)
def test_an_ipv6_network_is_one_source(host, source):
    """IPv4 addresses count each, IPv6 addresses by their /64 network."""
    assert source == source_of(host)
